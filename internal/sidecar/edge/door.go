package edge

import (
	"maps"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
)

// The stages. Each is replaced without the others.
type (
	// Admitter decides by where a request comes from and goes to. If it returns false it
	// has answered the request.
	Admitter interface {
		Admit(w http.ResponseWriter, r *http.Request, methods string) bool
	}
	// Authenticator names the caller of a request, or says why it is refused.
	Authenticator interface {
		Authenticate(r *http.Request) (caller.Caller, *Refusal)
	}
	// Locator says whether this instance answers a request: by the session that its header
	// names, before the body is read, and by what it goes on with, after. If it returns
	// false it has answered the request, or another instance has.
	Locator interface {
		BySession(w http.ResponseWriter, r *Request) bool
		ByState(w http.ResponseWriter, r *Request) bool
	}
	// Budget says how much of a body is read, or why none is.
	Budget interface {
		Reserve(r *Request) (BodyLimits, *Refusal)
		// Grow is called before a body takes so many bytes more.
		Grow(r *Request, bytes int) *Refusal
		// Slow is called whenever more of a body is waited for. If it returns false, the
		// body gives way to others.
		Slow(r *Request) bool
		// Filled is called when the body is whole.
		Filled(r *Request)
		// Release is called once, when the body is not held any more: when the front end
		// drops it, or the request is over.
		Release(r *Request)
	}
	// Authorizer decides whether the caller may do what its messages ask for.
	Authorizer interface {
		Authorize(r *Request) *Refusal
	}
)

// Route is the front end of one path.
type Route struct {
	Methods string // that a web page may use here, as a browser is told
	// Check refuses a request by its head, before the body is read. If it returns false it
	// has answered the request. It may be nil.
	Check func(w http.ResponseWriter, r *Request) bool
	// Serve answers the request. Messages of a POST have been read.
	Serve func(w http.ResponseWriter, r *Request)
}

// Options are what a Door needs. Admit and Budget must be there; other stages that are nil
// let every request pass.
type Options struct {
	Admit        Admitter
	Authenticate Authenticator
	Locate       Locator
	Budget       Budget
	Authorize    Authorizer
	Routes       map[string]Route // by path, exactly
	Elsewhere    http.HandlerFunc // answers for all other paths
	// Closing is closed when clients are to connect elsewhere: from then on every answer
	// outside a session says that its connection closes. A session cannot be reached elsewhere. http.Server can do that, but closes idle connections
	// at the same moment, and with them requests that have just been sent. It may be nil.
	Closing <-chan struct{}
	Metrics *Metrics
	// Refusals logs requests that are refused; may be nil.
	Refusals *Refusals
	// Closed is told of every record that is closed, for tests and audits; may be nil.
	Closed func(Record)
}

// Door is the one way in.
type Door struct{ options Options }

// New returns a Door.
func New(options Options) *Door {
	if options.Authenticate == nil {
		options.Authenticate = Unverified{}
	}
	if options.Locate == nil {
		options.Locate = Here{}
	}
	if options.Authorize == nil {
		options.Authorize = Everything{}
	}
	if options.Elsewhere == nil {
		options.Elsewhere = http.NotFound
	}
	return &Door{options}
}

// passage is one request on its way, with all that is made for it in one piece.
type passage struct {
	answerWriter
	request Request
}

func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := &passage{
		answerWriter: answerWriter{ResponseWriter: w},
		request: Request{Request: r, door: d, Record: Record{
			HTTPMethod: r.Method, Path: r.URL.Path, began: time.Now(),
		}},
	}
	p.asked, p.request.writer = &p.request, &p.answerWriter
	// A panic aborts the answer on purpose; the record is closed all the same.
	defer d.close(p)
	d.pass(&p.answerWriter, &p.request)
}

// pass takes a request through the stages.
func (d *Door) pass(w *answerWriter, r *Request) {
	o := &d.options
	route, ok := o.Routes[r.URL.Path]
	if !ok {
		o.Elsewhere(w, r.Request)
		return
	}
	if !o.Admit.Admit(w, r.Request, route.Methods) {
		return
	}
	from, refused := o.Authenticate.Authenticate(r.Request)
	if refused != nil {
		refused.write(w, nil)
		return
	}
	r.Caller = from
	if route.Check != nil && !route.Check(w, r) || !o.Locate.BySession(w, r) {
		return
	}
	if r.Method == http.MethodPost {
		limits, refused := o.Budget.Reserve(r)
		if refused != nil {
			refused.write(w, nil)
			return
		}
		r.reserved = true
		defer r.release()
		if !r.read(w, limits) || !o.Locate.ByState(w, r) {
			return
		}
	}
	if refused := o.Authorize.Authorize(r); refused != nil {
		refused.write(w, r.idOfSole())
		return
	}
	route.Serve(w, r)
}

// Refusal is why a stage does not let a request pass.
type Refusal struct {
	Status int    // of HTTP
	Code   int    // of JSON-RPC
	Text   string // for the client
	Header http.Header
}

// closing is the refusal of a request whose body is not read to its end.
func (f *Refusal) closing() *Refusal {
	closing := *f
	closing.Header = f.Header.Clone()
	if closing.Header == nil {
		closing.Header = http.Header{}
	}
	closing.Header.Set("Connection", "close")
	return &closing
}

func (f *Refusal) write(w http.ResponseWriter, id []byte) {
	maps.Copy(w.Header(), f.Header)
	frontend.Refuse(w, f.Status, id, f.Code, f.Text)
}
