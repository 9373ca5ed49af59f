// Package manifest turns descriptions of MCP servers that people already have into MCPServers: the
// configuration of MCP clients (mcpServers of Claude Desktop, Claude Code and Cursor, servers and
// inputs of VS Code), and the MCPServers of ToolHive, kmcp and kubernetes-sigs/mcp-lifecycle-operator.
//
// It is pure: bytes go in, objects come out. Nothing is asked of a cluster, a registry or a package
// index. So the version of a package is not looked up: a package without one is carried over
// without one, and Result.Changed says so.
//
// # What is never lost without a word
//
// The input is read into a generic tree, and every value that is read is ticked off. What is not
// ticked off in the end is in Result.Dropped. Only what says nothing is left out without being named: what an
// API server writes itself (status, metadata.uid and the like), null, and what holds for every server of
// Slipway (docker run --rm, proxyMode: streamable-http).
//
// # Packages without an image
//
// A server that a client starts with npx or uvx becomes an image that has this program, with the
// command kept. This works with what Slipway gives to a pod by default, also if the root file system
// is read-only: both programs write only below HOME and to /tmp, which are volumes of their own. The
// price is an installation in each new pod and a question to the package index for each session. So
// such a server has a longer session.startTimeout, and adapter.limits.concurrentStarts of 1, because
// processes of one pod that install at the same time write the same cache. Result.Changed advises an
// image of one's own. Programs other than npx, uvx and docker exist on one machine only, and servers
// behind a URL have no field in the API yet: neither is carried over.
//
// # Secrets
//
// A value that looks like a secret leaves the spec. It becomes a key of a Secret, with the value
// CHANGE_ME unless Options.WithSecrets is set, and a secretKeyRef. What looks like a secret and is
// none costs a person one edit; the other mistake costs a password.
package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/text"
)

// File is one file to import. Its format is found by its content.
type File struct {
	Name    string // for messages
	Content []byte
}

// Options say how files are imported.
type Options struct {
	// Namespace is that of all objects. If it is empty, manifests keep theirs, and servers of
	// clients have none.
	Namespace string
	// WithSecrets writes the values of secrets into the Secrets, instead of CHANGE_ME.
	WithSecrets bool
}

// Result is what Import made of the files.
type Result struct {
	// Objects are Secrets and MCPServers, sorted by namespace and server. The Secret of a server
	// stands before the server.
	Objects []runtime.Object
	// Comments are what a person must know of an object before it is applied.
	Comments map[runtime.Object]string
	// Dropped names everything of the input that is not carried over.
	Dropped []Remark
	// Changed names what is carried over in another form, or should be looked at.
	Changed []Remark
}

// Remark says something about one field of the input.
type Remark struct {
	File   string
	Object string // the server or the manifest; empty if it is about the whole file
	Field  string // its path in the file; empty if it is about the whole object
	Why    string
}

// Bounds of each part of a Remark, and of a problem: names in the input can have any length.
const (
	longestRemark  = 400
	longestProblem = 1000
)

// Import reads files of any supported format. An error names everything that is wrong with the
// files; there is no Result then.
func Import(files []File, options Options) (Result, error) {
	if options.Namespace != "" {
		if problems := validation.IsDNS1123Label(options.Namespace); len(problems) > 0 {
			return Result{}, fmt.Errorf("namespace %q: %s", text.Line(options.Namespace, longestRemark), problems[0])
		}
	}
	run := &importer{options: options, names: map[string]bool{}, isNamed: map[Remark]bool{}}
	for _, file := range files {
		run.file = text.Line(file.Name, longestRemark)
		run.read(file.Content)
	}
	if err := errors.Join(run.problems...); err != nil {
		return Result{}, err
	}
	return run.result(), nil
}

// importer holds what the files of one run share.
type importer struct {
	options  Options
	file     string // the one that is read now
	problems []error
	names    map[string]bool // of servers, with their namespaces
	servers  []*draft
	dropped  []Remark
	isNamed  map[Remark]bool
	changed  []Remark
}

// problem notes what is wrong with the file. Names of the input are in it, so it is made fit for a terminal.
func (i *importer) problem(format string, args ...any) {
	i.problems = append(i.problems, errors.New(text.Line(i.file+": "+fmt.Sprintf(format, args...), longestProblem)))
}

func (i *importer) remark(object, field, why string) Remark {
	return Remark{
		File:   i.file,
		Object: text.Line(object, longestRemark),
		Field:  text.Line(field, longestRemark),
		Why:    text.Line(why, longestRemark),
	}
}

// drop names what is not carried over. Some fields are read for two purposes, and named once.
func (i *importer) drop(object, field, why string) {
	remark := i.remark(object, field, why)
	if !i.isNamed[remark] {
		i.isNamed[remark] = true
		i.dropped = append(i.dropped, remark)
	}
}

func (i *importer) change(object, field, why string) {
	i.changed = append(i.changed, i.remark(object, field, why))
}

// result sorts the servers. Remarks stay in the order of the files.
func (i *importer) result() Result {
	slices.SortStableFunc(i.servers, func(a, b *draft) int {
		return cmp.Or(cmp.Compare(a.server.Namespace, b.server.Namespace), cmp.Compare(a.server.Name, b.server.Name))
	})
	result := Result{Dropped: i.dropped, Changed: i.changed}
	for _, d := range i.servers {
		if d.secret != nil {
			result.Objects = append(result.Objects, d.secret)
		}
		result.Objects = append(result.Objects, d.server)
	}
	return result
}

var (
	secretKind = corev1.SchemeGroupVersion.WithKind("Secret")
	serverKind = mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer")
)
