package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
)

// Missing says what becomes of calls that have no key.
type Missing uint8

const (
	// MissingShared counts all these calls under one key of their own.
	MissingShared Missing = iota
	// MissingDeny ends these calls with PermissionDenied.
	MissingDeny
	// MissingSkip lets these calls pass, uncounted.
	MissingSkip

	missings = iota
)

// A Call describes a call that is to be decided.
type Call struct {
	// Method is the full method name, /package.Service/Method.
	Method string
	// Stream reports whether the call is a stream.
	Stream bool
	// Message is the message that a stream received, or the request of a unary
	// call. It is nil for a stream that opens.
	Message any
}

// Options say how a guard behaves. The zero value suits most programs. The
// functions are called from many goroutines at once.
type Options struct {
	// Cost returns how many units a call takes. A cost of 0 passes without being counted, a
	// cost above the limit never passes. The default is 1.
	Cost func(context.Context, Call) int64
	// Limits returns limits that a call's key is held to in place of the limiter's own, such
	// as those of a customer's plan; if it returns none, the limiter's own apply. They count
	// under the limiter's name: a key keeps what it has used, and a ban, under limits of the
	// same algorithm and period; others start unused. If the
	// limits cannot be held, or a memstore already has 4,096 of this name that still count,
	// OnError gets the error, and the limiter's own decide. Rules have tiers instead. The
	// default returns none.
	Limits func(context.Context, Call) []stint.Limit
	// Skip reports whether a call passes undecided and uncounted. The default
	// is [Exempt].
	Skip func(ctx context.Context, method string) bool
	// Messages holds each message that a stream receives to the limits, as well
	// as its opening; a denied message ends its stream. Under a policy, attribute
	// grpc.message is "true" for messages and missing otherwise. The default
	// value is false.
	Messages bool
	// Address returns the client's address for rules that look at ip. The default is the
	// address of the connection.
	Address func(context.Context) (netip.Addr, bool)
	// Attribute returns further attributes that a policy's rules use,
	// such as jwt.sub. The default returns none.
	Attribute func(ctx context.Context, method, name string) (value string, ok bool)
	// Missing is for calls without a key. The default value is MissingShared.
	Missing Missing
	// Shadow decides, counts and reports, but lets every call pass and sends clients no
	// metadata. The default value is false.
	Shadow bool
	// FailOpen lets calls pass that could not be decided because the store failed; that a
	// client's deadline is over is no such failure. The default value is false: the calls end
	// with Unavailable.
	FailOpen bool
	// OnError is called with the error of a call that could not be decided or settled.
	// Optional.
	OnError func(ctx context.Context, method string, err error)
	// OnDecision is called with each decision, before the call goes on or ends.
	// Optional.
	OnDecision func(ctx context.Context, method string, o Outcome)
	// MaxWait is how long a call, or a message, may wait for its start; one that would wait
	// longer is denied at once. With the default value, 0, it waits as long as a leaky_queue
	// holds it and rules say by wait, else not at all. With a negative value no call waits,
	// and a leaky_queue lets calls that it has room for pass without spacing them.
	MaxWait time.Duration
	// Settle returns what a call has cost, by its code and by the metadata of its header and
	// its trailer, in units. cost is what it took: return cost to let that stand, 0 to give
	// it back, for example so that only failures count, more to charge the difference too,
	// room or not; a value below 0 lets the cost stand. Settle is called once, when the
	// handler has returned, and the trailer waits for the settlement; a handler that panics
	// counts as Internal. If the client has left and the handler fails for it, Settle is not
	// called, and the cost stands.
	// The cost is a reservation: units that have recovered in the meantime are not given
	// back. Settle is not called for calls of cost 0, nor for messages. Under a policy, 0
	// gives back what all rules took, and any other value leaves the cost to the rules.
	// Without a policy, Settle cannot be combined with waiting. The default lets the cost
	// stand.
	Settle func(code codes.Code, said metadata.MD, cost int64) int64
	// NoFields sends no ratelimit and ratelimit-policy metadata. The default
	// value is false.
	NoFields bool
}

// An Outcome is what was decided about one call.
type Outcome struct {
	// Decision is the answer.
	Decision stint.Decision
	// Key is the key that the call was counted under. It is what a client sent,
	// or its address: keep it out of logs and metric labels.
	Key string
	// Violated is the names of the limits that denied the call, or would have in shadow.
	Violated []string
	// Rules is the policy's whole answer, valid until the function that got
	// the Outcome returns; nil without a policy.
	Rules *policy.Result
	// Shadow says that the call passes whatever Decision says.
	Shadow bool
	// Message says that the decision was about a message of a stream.
	Message bool
	// Waited is how long the call waited for its start.
	Waited time.Duration
}

// Exempt reports whether a method belongs to grpc.health.v1 or to reflection, which probes
// and tools call.
func Exempt(_ context.Context, method string) bool {
	switch method {
	case "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List", "/grpc.health.v1.Health/Watch",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo":
		return true
	}
	return false // other methods of these services go to a handler of unknown services
}

// check fills in defaults, or says what is wrong.
func (o *Options) check() error {
	if o.Missing >= missings {
		return fmt.Errorf("grpclimit: unknown word %d for calls without a key", o.Missing)
	}
	if o.Skip == nil {
		o.Skip = Exempt
	}
	if o.Address == nil {
		o.Address = peerAddr
	}
	return nil
}

func (o *Options) cost(ctx context.Context, c Call) int64 {
	if o.Cost == nil {
		return 1
	}
	return o.Cost(ctx, c)
}

func (o *Options) reportError(ctx context.Context, method string, err error) {
	if o.OnError != nil {
		o.OnError(ctx, method, err)
	}
}

var errNoLimiter = errors.New("grpclimit: no limiter: stint.NewLimiter makes one")
