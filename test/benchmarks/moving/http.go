package moving

import (
	"errors"
	"net/http"
	"time"

	"github.com/didip/tollbooth/v7"
	"github.com/didip/tollbooth/v7/limiter"
	"github.com/go-chi/httprate"
	golimiter "github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/stint-dev/stint/httplimit"
)

var errBusy = errors.New("busy")

func ululeBefore(app http.Handler) (http.Handler, error) {
	rate, err := ulule.NewRateFromFormatted("100-M")
	if err != nil {
		return nil, err
	}
	return stdlib.NewMiddleware(ulule.New(memory.NewStore(), rate)).Handler(app), nil
}

func ululeAfter(app http.Handler) (http.Handler, error) {
	return httplimit.ByIP("site", "100/min fixed_window from first")(app), nil
}

func httprateBefore(app http.Handler) (http.Handler, error) {
	return httprate.LimitByIP(100, time.Minute)(app), nil //nolint:staticcheck // what programs have today
}

func httprateAfter(app http.Handler) (http.Handler, error) {
	return httplimit.ByIP("site", "100/min sliding_counter")(app), nil
}

func tollboothBefore(app http.Handler) (http.Handler, error) {
	limit := tollbooth.NewLimiter(1, &limiter.ExpirableOptions{DefaultExpirationTTL: time.Hour})
	limit.SetBurst(100).SetIgnoreURL(true).SetIPLookups([]string{"RemoteAddr"})
	return tollbooth.LimitHandler(limit, app), nil
}

func tollboothAfter(app http.Handler) (http.Handler, error) {
	return httplimit.ByIP("site", "1/s burst 100")(app), nil
}

func golimiterBefore(app http.Handler) (http.Handler, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 100, Interval: time.Minute})
	if err != nil {
		return nil, err
	}
	guard, err := golimiter.NewMiddleware(store, golimiter.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return guard.Handle(app), nil
}

func golimiterAfter(app http.Handler) (http.Handler, error) {
	return httplimit.ByIP("site", "100/min fixed_window from first")(app), nil
}
