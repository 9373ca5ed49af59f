// Package origin checks the Origin and Host headers of requests. Without these checks, a web page could
// reach a server in its visitor's network through the visitor's browser, by DNS rebinding.
package origin

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// Any in a list allows everything.
const Any = "*"

const localhost = "localhost"

// opaque is what a browser sends as the origin of a page without one, such as a file.
const opaque = "null"

// Policy is the set of allowed origins and hosts.
//
// A Policy always allows a request without an Origin header, because no web page sends it. It also
// allows loopback origins, because their pages come from a program on the same machine.
//
// It allows addresses and localhost as Host, because DNS cannot rebind those. Other names must be in
// the list, unless the list is empty.
type Policy struct {
	Origins []string // such as https://chat.example.com
	Hosts   []string // names, with or without a port
}

// Validate returns an error for entries that no header can equal. The API server refuses
// the same entries: what it accepts must not keep a pod from starting.
func (p *Policy) Validate() error {
	var problems []error
	for _, entry := range p.Origins {
		if entry != Any && entry != opaque && !isOrigin(entry) {
			problems = append(problems, fmt.Errorf("allowed-origin %q can never match: write it with its scheme and without a path, as in https://chat.example.com, or * for all", entry))
		}
	}
	for _, entry := range p.Hosts {
		if entry != Any && (entry == "" || strings.ContainsAny(entry, "/?#@ ")) {
			problems = append(problems, fmt.Errorf("allowed-host %q can never match: write a name, with or without a port, as in mcp.example.com, or * for all", entry))
		}
	}
	return errors.Join(problems...)
}

func isOrigin(text string) bool {
	scheme, host, ok := strings.Cut(text, "://")
	return ok && scheme != "" && host != "" && !strings.ContainsAny(host, "/?#@ ")
}

// Names are the settings by which a user changes a Policy. Errors contain them.
type Names struct {
	Origins, Hosts string
}

// shown is how many bytes of a header an error repeats.
const shown = 256

// Check returns an error if a header of the request is forbidden.
func (p *Policy) Check(r *http.Request, names *Names) error {
	if !p.hostAllowed(r.Host) {
		return fmt.Errorf("the host %q is not one that this server may be reached by: allowed hosts are %s", rpc.ClipTo(r.Host, shown), whereSet(names.Hosts))
	}
	for _, value := range r.Header["Origin"] {
		if !p.originAllowed(value) {
			return fmt.Errorf("the origin %q is not allowed here: allowed origins are %s", rpc.ClipTo(value, shown), whereSet(names.Origins))
		}
	}
	return nil
}

func whereSet(name string) string {
	if name == "" {
		return "configured on the server"
	}
	return "set by " + name
}

func (p *Policy) hostAllowed(host string) bool {
	if len(p.Hosts) == 0 {
		return true
	}
	name := withoutPort(host)
	if strings.EqualFold(name, localhost) {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	return slices.ContainsFunc(p.Hosts, func(allowed string) bool {
		return allowed == Any || strings.EqualFold(allowed, host) || strings.EqualFold(allowed, name)
	})
}

func (p *Policy) originAllowed(value string) bool {
	listed := slices.ContainsFunc(p.Origins, func(allowed string) bool {
		return allowed == Any || strings.EqualFold(allowed, value)
	})
	parsed, err := url.Parse(value)
	return listed || err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") && isLoopbackName(parsed.Hostname())
}

func withoutPort(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

func isLoopbackName(name string) bool {
	name = strings.Trim(name, "[]")
	if strings.EqualFold(name, localhost) {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.IsLoopback()
}
