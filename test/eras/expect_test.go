// Package eras has clients of every revision use servers of every era through one running
// adapter, and says what comes of it. What is expected stands here, and from here in
// docs/protocol.md; the clients and servers are in files that need npm, and run with the
// conformance suite.
package eras

import (
	"slices"
	"strings"
)

const (
	modern      = "2026-07-28" // the revision without sessions
	anyRevision = "any"        // of clients that try it first, and fall back
)

var (
	revisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", modern}
	// Those that have two calls at a time come last: they may leave a process busy.
	features = []string{"tools", "resources", "prompts", "list_changed", "subscription", "elicitation", "sampling", "progress", "cancellation"}
)

// A way is how a client is served.
type way string

const (
	native     way = "native"     // The server speaks the client's revision.
	translated way = "translated" // It speaks one of the other era.
	fallsBack  way = "falls back" // It has sessions only: clients that can open a session, others are refused.
	notYet     way = "not yet"    // Not built yet. The clients try anyway.
	either     way = "either"     // For clients that take what they get.
)

// server is one of the columns.
type server struct {
	name    string
	command []string // without the file that it keeps; the first is a program of test/servers
	flags   []string // of the adapter
	ways    []way    // one for each of the revisions
	// elsewhere says that clients use another replica than the one that has their sessions and parked calls.
	elsewhere bool
}

// columns is the matrix. A server on standard input and output comes after the flags, and
// one that speaks HTTP is run beside the adapter.
var columns = []server{
	{
		name: "stdio, legacy", command: []string{"era", "legacy", "matrix"}, flags: []string{"--legacy-sse"},
		ways: []way{native, native, native, native, fallsBack},
	},
	{
		name: "stdio, both eras", command: []string{"matrix"}, flags: []string{"--legacy-sse"},
		ways: []way{native, native, native, native, native},
	},
	{
		name: "stdio, modern", command: []string{"era", "modern", "matrix"}, flags: []string{"--legacy-sse"},
		ways: []way{translated, translated, translated, translated, native},
	},
	{
		name: "streamable-http, legacy", command: []string{"matrix", "-http", "legacy"}, flags: []string{"--transport", "streamable-http", "--legacy-sse"},
		ways: []way{native, native, native, native, fallsBack},
	},
	{
		name: "streamable-http, modern", command: []string{"matrix", "-http", "modern"}, flags: []string{"--transport", "streamable-http", "--legacy-sse"},
		ways: []way{translated, translated, translated, translated, native},
	},
	{
		name: "sse", command: []string{"matrix", "-http", "sse"}, flags: []string{"--transport", "sse", "--legacy-sse"},
		ways: []way{native, native, native, native, fallsBack},
	},
}

// http tells whether the server runs beside the adapter.
func (s server) http() bool { return slices.Contains(s.command, "-http") }

func (s server) way(revision string) way {
	if i := slices.Index(revisions, revision); i >= 0 {
		return s.ways[i]
	}
	return either
}

// withTranslation is the server behind an adapter that translates for clients without
// sessions.
func (s server) withTranslation() server {
	s.flags = append([]string{"--stateless-clients", "Translate"}, s.flags...)
	s.ways = slices.Clone(s.ways)
	for i, w := range s.ways {
		if w == fallsBack {
			s.ways[i] = translated
		}
	}
	return s
}

// A limit is a feature that some clients do not get as others do.
type limit struct {
	revisions []string
	servers   []string // all, if nil
	features  []string
	why       string
	answer    string // Part of what the client is told instead. Without it, the feature is to come.
}

var limits = []limit{
	{
		revisions: []string{"2024-11-05", "2025-03-26"},
		features:  []string{"elicitation"},
		why:       "the revision has none. The server learns of no such capability, and its error is passed on.",
		answer:    "elicitation",
	},
}

func (l limit) covers(revision, server string) bool {
	return slices.Contains(l.revisions, revision) && (l.servers == nil || slices.Contains(l.servers, server))
}

// An expectation is about one feature, for clients of one revision and one server.
type expectation struct {
	toCome bool
	answer string // What the client is told where it cannot be.
	why    string // Of both; without them, the feature works.
}

func expect(way way, revision, server, feature string) expectation {
	if way == notYet {
		return expectation{toCome: true, why: "the cell is to come"}
	}
	for _, l := range limits {
		if l.covers(revision, server) && slices.Contains(l.features, feature) {
			return expectation{toCome: l.answer == "", answer: l.answer, why: l.why}
		}
	}
	return expectation{}
}

const ok = "ok"

// judge compares what was measured with what is expected: something is wrong, or is not
// looked at yet, or neither.
func (e expectation) judge(got string) (wrong, skip string) {
	switch {
	case e.why == "" && got != ok:
		return got, ""
	case e.why == "":
		return "", ""
	case got == ok:
		return "it works, and is said not to: " + e.why, ""
	case e.toCome:
		return "", e.why + "; now: " + got
	case !strings.Contains(got, e.answer):
		return "got " + got + ", want " + e.answer + " in it: " + e.why, ""
	}
	return "", ""
}

// judgeServed compares the revision that the server believed to speak.
func (w way) judgeServed(revision, served string) (wrong string) {
	switch {
	case w == native && served != revision:
		return "the server spoke " + served + ", want " + revision
	case w == either && served == "":
		return "the server does not say what it spoke"
	case w == translated && (served == "" || (served < modern) == (revision < modern)):
		return "the server spoke " + served + ", want the other era"
	}
	return ""
}
