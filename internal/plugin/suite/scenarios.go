package suite

import "slices"

// Revisions are those that the suite has a set of requirements for, from old to new.
var Revisions = []string{"2025-11-25", "2026-07-28"}

// Offers are the kinds of things that a server offers.
type Offers struct{ Tools, Resources, Prompts bool }

// forAll are the scenarios that a server of any purpose can pass, because they use nothing but what
// each server has, or each server that offers a kind of things at all. All others want what only a
// server made for the suite has:
//
//   - tools-call-*, json-schema-2020-12, elicitation-*, input-required-result-*, server-sse-polling: tools
//     such as test_simple_text. Some of input-required-result-* pass without them, and then say nothing.
//   - resources-read-*, resources-templates-read, resources-subscribe, resources-unsubscribe: resources
//     such as test://static-text.
//   - prompts-get-*: prompts such as test_simple_prompt.
//   - completion-complete: completion for the arguments of test_prompt_with_arguments.
//   - logging-set-level: logging, which a server need not have.
//   - server-stateless: the tools test_missing_capability, test_streaming_elicitation and test_logging_tool.
//   - caching: tools, resources, templates and prompts in one server.
//   - tasks-*, sep-2640-*, server-session-lifecycle, http-*: no revision requires them.
var forAll = []struct {
	name      string
	revisions []string
	need      func(Offers) bool
}{
	{"server-initialize", Revisions[:1], always},
	{"ping", Revisions[:1], always},
	{"dns-rebinding-protection", Revisions, always},
	{"server-sse-multiple-streams", Revisions, Offers.hasTools}, // it lists tools in each stream
	{"tools-list", Revisions, Offers.hasTools},
	{"resources-list", Revisions, Offers.hasResources},
	{"sep-2164-resource-not-found", Revisions[1:], Offers.hasResources},
	{"prompts-list", Revisions, Offers.hasPrompts},
}

func always(Offers) bool { return true }

func (o Offers) hasTools() bool     { return o.Tools }
func (o Offers) hasResources() bool { return o.Resources }
func (o Offers) hasPrompts() bool   { return o.Prompts }

// ForAll are the scenarios of a revision that every server with such offers can pass.
func ForAll(revision string, offers Offers) []string {
	var names []string
	for _, scenario := range forAll {
		if slices.Contains(scenario.revisions, revision) && scenario.need(offers) {
			names = append(names, scenario.name)
		}
	}
	return names
}
