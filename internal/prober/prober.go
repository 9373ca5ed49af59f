// Package prober asks the instances of MCP servers whether they work and what they
// offer, and says when an answer has changed. It keeps the network out of the
// reconciler: questions are asked by a bounded pool of workers, each within a deadline.
package prober

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/text"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// Options are how to ask. The zero value is good for every cluster.
type Options struct {
	// Workers is how many instances are asked at a time; 16 when zero. The instances
	// of one server have a quarter of them at most, and those that did not answer in
	// time when last asked have half of them together.
	Workers int
	// Notify is called with the name of a server when something has changed in
	// substance in what Results returns for it. It must not block.
	Notify func(server types.NamespacedName)
	// Limits bound what is taken of a catalog.
	Limits mcpprobe.Limits
	// ClientPort and AdminPort are the adapter's.
	ClientPort int
	AdminPort  int
	// Term returns a number that is higher for each leader than for those before it. Nil means that adapters
	// get no lists of their servers' pods.
	Term func(context.Context) (int64, error)
	Log  logr.Logger
	// Registry takes the metrics; nil means none.
	Registry prometheus.Registerer
}

const (
	defaultWorkers  = 16
	defaultInterval = 10 * time.Second
	defaultTimeout  = 5 * time.Second
)

func (o Options) withDefaults() Options {
	if o.Workers <= 0 {
		o.Workers = defaultWorkers
	}
	if o.Notify == nil {
		o.Notify = func(types.NamespacedName) {}
	}
	if o.ClientPort == 0 {
		o.ClientPort = mcpv1alpha1.AdapterPort
	}
	if o.AdminPort == 0 {
		o.AdminPort = mcpv1alpha1.AdapterAdminPort
	}
	return o
}

// Instance is a pod to look after.
type Instance struct {
	Pod types.NamespacedName
	UID types.UID
	IP  string
	// Ready is whether the pod is ready for clients. A pod that ends never is.
	Ready bool
	// Terminating says that the pod was deleted, and ends. Its adapter is asked on, and it is not verified any more.
	Terminating bool
	// The rest of what the list of the server's pods says of it: see adapterapi.PeerPod.
	Address      string
	Zone         string
	Newest       bool
	Cordoned     bool
	DrainSeconds int64
	Closing      bool
	// Starts counts the starts of its containers; Refresh is whatever the user put
	// into the annotation. A change of either asks for a new verification.
	Starts  int32
	Refresh string
	// Key is the server's: the prober proves itself by it, to read the catalog and to
	// have the slot that is reserved for a verification.
	Key      adapterapi.Key
	Interval time.Duration
	Timeout  time.Duration
	// Stored is the digest of the catalog that the cluster holds already; the
	// prober need not keep that one.
	Stored string
	// Settings are what its adapter is to go by. An adapter that takes settings and goes
	// by others is sent these, at once and again until it has them.
	Settings adapterapi.Document
	// Access is the same of who may call what.
	Access adapterapi.Document
	// Peers is the list of the server's pods, which the prober itself makes.
	Peers adapterapi.Document
}

// Outcome is the result of a verification of an instance through its client port.
type Outcome string

// The outcomes.
const (
	// Pending: it was not asked yet.
	Pending Outcome = "Pending"
	// Verified: it answered as an MCP server does.
	Verified Outcome = "Verified"
	// Failed: it did not.
	Failed Outcome = "Failed"
	// Unreachable: the prober could not connect.
	Unreachable Outcome = "Unreachable"
	// Full: it was busy, so the prober could not verify it.
	Full Outcome = "Full"
	// Unauthorized: the server wants credentials that the manager does not have.
	Unauthorized Outcome = "Unauthorized"
)

// Result is what is known of an instance.
type Result struct {
	Outcome Outcome
	// Message says why the outcome is not Verified. With Verified it is empty, or
	// says why the catalog cannot be read.
	Message string
	// Report is what the adapter last said of its server; nil before the first time.
	Report *Report
	// Catalog is what the server last offered; nil before the first time. It is
	// shared and never changed. Of a server that listed too much from its start it
	// has Summary.TooLarge and nothing else.
	Catalog *Catalog
	// Sessions are those of clients.
	Sessions adapterapi.Sessions
	// Processes counts how the server's processes ended recently; zero from an adapter that does
	// not report it.
	Processes adapterapi.Processes
	// Keys says which keys the adapter goes by, as it said when it last answered; nil before the first time, and from
	// an adapter that does not say. It is shared and never changed.
	Keys *adapterapi.KeyUse
	// Silent is true if the adapter did not answer when it was last asked.
	Silent bool
	// Flapping is true while the catalog changes so often that not every change
	// is followed.
	Flapping bool
	// Access says which access document the adapter enforces; nil before the first report, and of an
	// adapter that enforces none.
	Access *Access
}

// Access says which access document an adapter enforces.
type Access struct {
	// Version is the newest version of documents that the adapter reads.
	Version int
	// Generation and Digest are those of the document; zero and empty while there is none.
	Generation int64
	Digest     string
	// UnknownKeys are the names of issuers of tokens whose keys the adapter does not have, with a blank
	// between them.
	UnknownKeys string
}

const (
	maxUnknownKeys = 9  // as many issuers as a spec can have
	maxIssuerName  = 63 // characters
	maxDigest      = 64
)

// boundAccess is what is kept of an adapter's word.
func boundAccess(state *adapterapi.AccessState) *Access {
	if state == nil {
		return nil
	}
	var unknown []string
	for _, name := range state.UnknownKeys[:min(len(state.UnknownKeys), maxUnknownKeys)] {
		unknown = append(unknown, text.Line(name, maxIssuerName))
	}
	slices.Sort(unknown)
	return &Access{Version: state.Version, Generation: state.Generation, Digest: text.Line(state.Digest, maxDigest), UnknownKeys: strings.Join(unknown, " ")}
}

// Report is what an adapter says of its server.
type Report struct {
	Ready bool
	// Reason is one of those of package adapterapi, for programs; Error is for people.
	Reason string
	Error  string
	// Failures is how many starts in a row have failed since a server last answered; at most
	// maxFailures.
	Failures int64
}

// Catalog is what a server offers.
type Catalog struct {
	// Summary is as a status has it: lists sorted and cut, counts true.
	Summary Summary
	// Stored is the whole, for the ConfigMap; nil once that has it.
	Stored *workload.Catalog
}

// Summary is the part of a status that comes from a catalog.
type Summary struct {
	ServerInfo       mcpv1alpha1.ServerInfo
	ProtocolVersions []string
	Catalog          mcpv1alpha1.Catalog
	// TooLarge says which limit the server's lists hit; empty when everything was taken.
	TooLarge string
}
