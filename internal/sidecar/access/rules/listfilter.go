package rules

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
)

// ListFilter filters the answer to one request for a list.
type ListFilter struct {
	rights *Rights
	method string
}

// FiltersAny reports whether there is a list that the caller sees only in part, so that FilterAny must see
// answers to requests that the adapter does not know.
func (r *Rights) FiltersAny() bool { return r != nil && (r.blocked || len(r.partial) > 0) }

// ListFilter returns a filter for the answer to a request with this method. It is nil if the caller sees all
// of the answer.
func (r *Rights) ListFilter(method []byte) *ListFilter {
	if !r.Filters(method) {
		return nil
	}
	return &ListFilter{r, string(method)}
}

// For returns the same filter for a caller with other rights.
func (f *ListFilter) For(rights *Rights) *ListFilter {
	if f.rights == rights {
		return f
	}
	return &ListFilter{rights, f.method}
}

// Apply returns what the caller may see of an answer, and the envelope of that. It may overwrite the answer,
// but not the id. An answer that it cannot read becomes an error for the request with this id.
func (f *ListFilter) Apply(answer, id []byte) ([]byte, rpc.Envelope) {
	e, err := rpc.ScanLenient(answer)
	if err != nil || e.Kind != rpc.Response {
		return unreadable(id)
	}
	shown := f.rights.Filter(f.method, answer, &e)
	if e, err = rpc.ScanLenient(shown); err != nil {
		return unreadable(id)
	}
	return shown, e
}

// ApplyAny is Apply for an answer that may be to another request than the one with this id.
func (f *ListFilter) ApplyAny(answer, id []byte) ([]byte, rpc.Envelope) {
	e, err := rpc.ScanLenient(answer)
	if err != nil || e.Kind != rpc.Response {
		return unreadable(id)
	}
	shown := f.rights.FilterAny(answer, &e)
	if e, err = rpc.ScanLenient(shown); err != nil {
		return unreadable(id)
	}
	return shown, e
}

func unreadable(id []byte) ([]byte, rpc.Envelope) {
	text := rpc.AppendError(nil, id, rpc.CodeInternal, "the server's list cannot be filtered for you: it is not a valid answer", nil)
	e, err := rpc.Scan(text)
	if err != nil {
		panic("scan an error of the adapter: " + err.Error()) // the id is that of a request that was scanned
	}
	return text, e
}
