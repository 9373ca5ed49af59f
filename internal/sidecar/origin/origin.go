// Package origin decides by the Origin and Host headers whether a request may come
// from where it says it comes from, so that a web page cannot use a visitor's
// browser to reach a server that is not meant for it (DNS rebinding).
package origin

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Any in a list allows everything.
const Any = "*"

// Policy says which origins and hosts are allowed.
//
// A request without an Origin header does not come from a web page and is always
// fine. Loopback origins are: whoever serves them has the machine already.
//
// A Host that is an address or a loopback name cannot be rebound. Other names must
// be in the list, unless there is none.
type Policy struct {
	Origins []string // such as https://chat.example.com
	Hosts   []string // names, with or without a port
}

// Check returns an error that says which header is not allowed.
func (p *Policy) Check(r *http.Request) error {
	if !p.hostAllowed(r.Host) {
		return fmt.Errorf("the host %q is not one that this server is reached by", r.Host)
	}
	for _, value := range r.Header.Values("Origin") {
		if !p.originAllowed(value) {
			return fmt.Errorf("the origin %q is not allowed", value)
		}
	}
	return nil
}

func (p *Policy) hostAllowed(host string) bool {
	if len(p.Hosts) == 0 {
		return true
	}
	name := withoutPort(host)
	if isLoopbackName(name) {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	for _, allowed := range p.Hosts {
		if allowed == Any || strings.EqualFold(allowed, host) || strings.EqualFold(allowed, name) {
			return true
		}
	}
	return false
}

func (p *Policy) originAllowed(value string) bool {
	for _, allowed := range p.Origins {
		if allowed == Any || strings.EqualFold(allowed, value) {
			return true
		}
	}
	parsed, err := url.Parse(value)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return false
	}
	return isLoopbackName(parsed.Hostname())
}

func withoutPort(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

func isLoopbackName(name string) bool {
	name = strings.Trim(name, "[]")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.IsLoopback()
}
