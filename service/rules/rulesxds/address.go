package rulesxds

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stint-dev/stint/internal/ports"
)

// An address is the URL of a control plane.
type address struct {
	host, shown             string
	tls, startEmpty, merge  bool
	cacert, cert, key, name string // three files, and the server's name
	node                    *core.Node
}

// metadata is the prefix of parameters that go into the node's metadata.
const metadata = "metadata."

var parameters = []string{"cacert", "cert", "insecure", "key", "merge_domains", "node", "server_name", "start_empty"}

// parse reads a URL.
func parse(text string) (a address, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Port() == "" || u.Scheme != "xds" && u.Scheme != "xdss" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return a, errors.New("want a URL such as xdss://envoy-gateway:18001?node=envoy-ratelimit&cacert=ca.crt&cert=tls.crt&key=tls.key")
	}
	if err := ports.Check(u); err != nil {
		return a, err
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return a, errors.New("the parameters of the URL cannot be read")
	}
	a = address{host: u.Host, shown: u.Scheme + "://" + u.Host, tls: u.Scheme == "xdss", node: &core.Node{Id: "default", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{}}}}
	plain := false
	for name, values := range q {
		value, of := values[0], (*bool)(nil)
		switch {
		case len(values) > 1:
			return a, fmt.Errorf("%s: given twice", name)
		case strings.HasPrefix(name, metadata):
			a.node.Metadata.Fields[name[len(metadata):]] = structpb.NewStringValue(value)
		case !slices.Contains(parameters, name):
			return a, fmt.Errorf("%.32q is no parameter: there are %s, metadata.KEY", name, strings.Join(parameters, ", "))
		case name == "insecure":
			of = &plain
		case name == "merge_domains":
			of = &a.merge
		case name == "start_empty":
			of = &a.startEmpty
		case name == "node":
			a.node.Id = value
		default:
			*map[string]*string{"cacert": &a.cacert, "cert": &a.cert, "key": &a.key, "server_name": &a.name}[name] = value
		}
		if of != nil {
			if *of = value == "true"; value != "true" && value != "false" {
				return a, fmt.Errorf("%s: want true or false", name)
			}
		}
	}
	return a, a.check(u, plain)
}

// check returns an error for parameters that contradict each other.
func (a address) check(u *url.URL, plain bool) error {
	addr, err := netip.ParseAddr(u.Hostname())
	switch {
	case !a.tls && a.cacert+a.cert+a.key+a.name != "":
		return errors.New("certificates are for xdss://")
	case !a.tls && !plain && u.Hostname() != "localhost" && (err != nil || !addr.IsLoopback()):
		return fmt.Errorf("%s: whoever is in between could change the rules: use xdss://, or say insecure=true", u.Host)
	case a.tls && plain:
		return errors.New("insecure is for xds://")
	case (a.cert == "") != (a.key == ""):
		return errors.New("cert goes with key: give both, or none")
	}
	_, err = a.credentials()
	return err
}

// credentials reads the files of certificates.
func (a address) credentials() (credentials.TransportCredentials, error) {
	if !a.tls {
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.name}
	if a.cacert != "" {
		text, err := os.ReadFile(a.cacert)
		if err != nil {
			return nil, fmt.Errorf("cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("cacert: %s: no certificate there: PEM with CERTIFICATE blocks", a.cacert)
		}
	}
	if a.cert != "" {
		pair, err := tls.LoadX509KeyPair(a.cert, a.key)
		if err != nil {
			return nil, fmt.Errorf("cert, key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}
