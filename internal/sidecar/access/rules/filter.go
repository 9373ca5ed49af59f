package rules

import (
	"slices"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// listing is a list that a result can have.
type listing struct {
	method string
	kind   Kind
	member string // of the result
	key    string // the member of an entry that rules go by
}

// listings has all lists.
var listings = [...]listing{
	{methodListTools, Tools, "tools", "name"},
	{methodListPrompts, Prompts, "prompts", "name"},
	{methodListResources, Resources, "resources", "uri"},
	{methodListTemplates, Resources, "resourceTemplates", "uriTemplate"},
}

// search looks for an entry of the list.
func (l *listing) search(key []byte) search {
	switch l.key {
	case "uri":
		return searchURI(key)
	case "uriTemplate":
		return searchTemplate(key)
	}
	return search{name: key}
}

// Filters reports whether Filter must see the answer to a request with this method: the caller may see only
// a part of it, or other callers may.
func (r *Rights) Filters(method []byte) bool {
	if r == nil || r.probe {
		return false
	}
	for i := range listings {
		if string(method) == listings[i].method {
			return r.filters(&listings[i]) || r.policy.tellsApart()
		}
	}
	return false
}

// filters reports whether the caller sees only a part of a list.
func (r *Rights) filters(l *listing) bool {
	return r.blocked || slices.Contains(r.partial, l.kind)
}

// Filter returns the answer to a request with this method without the entries that the caller may not
// see. The answer is a response that rpc.ScanLenient has accepted. An answer that Filter cannot read
// becomes an error: no entry passes unseen. Filter does not look at the entries if the caller sees all of
// them. Filter may overwrite the answer, and the envelope does not fit what it returns.
func (r *Rights) Filter(method string, answer []byte, e *rpc.Envelope) []byte {
	if !r.Filters([]byte(method)) || e.Error.Present() {
		return answer
	}
	l := &listings[slices.IndexFunc(listings[:], func(l listing) bool { return l.method == method })]
	if !r.filters(l) {
		return r.private(answer, e)
	}
	if !e.Result.IsObject(answer) {
		return refusal(answer, e, "the result is not an object")
	}
	found, err := rpc.Find(answer, e.Result, l.member, memberKind, memberTTL, memberScope)
	if err != nil {
		return refusal(answer, e, err.Error())
	}
	if !found[0].Present() {
		return refusal(answer, e, `the result has no member "`+l.member+`"`)
	}
	f := filtering{rights: r, answer: answer, result: e.Result, cache: [3]rpc.Span(found[1:4])}
	f.entries(l, found[0])
	return f.done(e)
}

// private returns a list of which the caller sees everything. Other callers may see less, so no cache may
// give it to them. It refuses a list only if a cache could not tell its audience.
func (r *Rights) private(answer []byte, e *rpc.Envelope) []byte {
	found, err := rpc.Find(answer, e.Result, memberKind, memberTTL, memberScope)
	if err != nil {
		return refusal(answer, e, err.Error())
	}
	f := filtering{rights: r, answer: answer, result: e.Result, cache: [3]rpc.Span(found[:3])}
	f.keepPrivate()
	return f.done(e)
}

// FilterAny is Filter for an answer to a request that the adapter does not know any more. It filters every
// list that a result can have. A list of which the caller sees everything passes: revisions with caches
// have no such answers.
func (r *Rights) FilterAny(answer []byte, e *rpc.Envelope) []byte {
	if !r.FiltersAny() || e.Error.Present() {
		return answer
	}
	const lists = len(listings)
	found, err := rpc.Find(answer, e.Result,
		listings[0].member, listings[1].member, listings[2].member, listings[3].member,
		memberKind, memberTTL, memberScope)
	if err != nil {
		return refusal(answer, e, err.Error())
	}
	f := filtering{rights: r, answer: answer, result: e.Result, cache: [3]rpc.Span(found[lists : lists+3])}
	for i := range listings {
		if l := &listings[i]; found[i].Present() && r.filters(l) {
			f.entries(l, found[i])
		}
	}
	return f.done(e)
}

// The members of a result of revision 2026-07-28 that say whether it is one, and who may keep it for how
// long (C-01).
const (
	memberKind  = "resultType"
	memberTTL   = "ttlMs"
	memberScope = "cacheScope"
)

// longestTTL is for how long a client may keep a list that depends on rules. The rules may change.
const longestTTL = 60_000

// filtering is the work on one answer.
type filtering struct {
	rights *Rights
	answer []byte
	result rpc.Span
	cache  [3]rpc.Span // resultType, ttlMs and cacheScope
	edits  rpc.Edits
	lists  int
	flaw   string // why the answer cannot be filtered
}

// entries drops the entries of one list that the caller may not see.
func (f *filtering) entries(l *listing, array rpc.Span) {
	if kind := f.cache[0]; kind.Present() && string(textOf(f.answer, kind)) != "complete" {
		f.flaw = `its resultType is not "complete"`
		return
	}
	if f.lists++; f.lists == 1 {
		// Before any entry goes, because Insert looks at all edits that drop something.
		f.keepPrivate()
	}
	if f.answer[array.Start] != '[' {
		f.flaw = `the member "` + l.member + `" is not a list`
	}
	if f.flaw != "" {
		return
	}
	f.edits.Filter(f.answer, array, func(entry rpc.Member) bool {
		if f.flaw != "" {
			return false // nothing of the answer is used
		}
		key, flaw := f.keyOf(l, entry.Value)
		f.flaw = flaw
		return flaw == "" && f.rights.shows(l.kind, l.search(key))
	})
}

// keyOf reads what rules go by. It must stand in the entry once, spelled so that all clients read the
// same. An entry that is no object has none.
func (f *filtering) keyOf(l *listing, entry rpc.Span) (key []byte, flaw string) {
	found, err := rpc.Find(f.answer, entry, l.key)
	if err != nil {
		return nil, err.Error()
	}
	key = textOf(f.answer, found[0])
	if key == nil {
		return nil, `an entry of "` + l.member + `" has no legible member "` + l.key + `"`
	}
	return key, ""
}

// keepPrivate makes the list private to its caller, so that a cache serves it to no other caller, and
// limits its time in a cache. A result with none of the three members is of a revision without caching.
func (f *filtering) keepPrivate() {
	kind, ttl, scope := f.cache[0], f.cache[1], f.cache[2]
	if !kind.Present() && !ttl.Present() && !scope.Present() {
		return
	}
	if !scope.Present() {
		f.edits.Insert(f.answer, f.result, []byte(`"cacheScope":"private"`))
	} else if private := `"private"`; string(scope.Of(f.answer)) != private {
		f.edits.Replace(scope, []byte(private))
	}
	if !ttl.Present() {
		f.edits.Insert(f.answer, f.result, []byte(`"ttlMs":0`))
	} else if bounded, ok := boundedTTL(ttl.Of(f.answer)); !ok {
		f.edits.Replace(ttl, strconv.AppendInt(nil, bounded, 10))
	}
}

// boundedTTL reports whether a value is a number within bounds. If it is not, it returns the nearest
// bound, which for anything but a number is 0.
func boundedTTL(value []byte) (bounded int64, ok bool) {
	number, err := strconv.ParseFloat(string(value), 64) // one that is too large is infinite
	switch {
	case number > longestTTL:
		return longestTTL, false
	case err != nil || number < 0:
		return 0, false
	}
	return 0, true
}

func (f *filtering) done(e *rpc.Envelope) []byte {
	switch {
	case f.flaw != "":
		return refusal(f.answer, e, f.flaw)
	case f.edits.Len() == 0:
		return f.answer
	}
	return f.edits.EditedInPlace(f.answer)
}

// refusal is the answer in the place of one that cannot be filtered.
func refusal(answer []byte, e *rpc.Envelope, why string) []byte {
	return rpc.AppendError(nil, e.ID.Of(answer), rpc.CodeInternal, "the server's list cannot be filtered for you: "+why, nil)
}
