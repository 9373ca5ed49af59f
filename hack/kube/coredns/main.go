// Command coredns is CoreDNS with just the plugins that the local cluster's Corefile names.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order is the order in which a query passes the plugins.
	dnsserver.Directives = []string{"errors", "health", "ready", "cache", "kubernetes"}
	coremain.Run()
}
