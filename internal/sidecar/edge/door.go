package edge

import (
	"maps"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// The stages. Each can be replaced without the others.
type (
	// Admitter decides by the Origin and Host of a request. If it returns false it has
	// answered the request.
	Admitter interface {
		Admit(w http.ResponseWriter, r *http.Request, methods string) bool
	}
	// Authenticator names the caller of a request, or refuses it.
	Authenticator interface {
		Authenticate(r *http.Request) (caller.Caller, *Refusal)
	}
	// Locator says whether this instance answers a request. Before the Door reads the
	// body, BySession decides by the session in the header; afterwards, ByState decides
	// by the task or state in the message. If either returns false, it has answered the
	// request, or another instance has.
	Locator interface {
		BySession(w http.ResponseWriter, r *Request) bool
		ByState(w http.ResponseWriter, r *Request) bool
	}
	// Budget bounds the bodies that the Door reads, or refuses a request before.
	Budget interface {
		Reserve(r *Request) (BodyLimits, *Refusal)
		// The Door calls Grow before a body takes so many bytes more.
		Grow(r *Request, bytes int) *Refusal
		// The Door calls Slow whenever it waits for more of a body. If Slow returns
		// false, the body gives way to others.
		Slow(r *Request) bool
		// The Door calls Filled when it has read the whole body.
		Filled(r *Request)
		// The Door calls Release once, when the front end drops the body or the request
		// ends.
		Release(r *Request)
	}
	// Authorizer decides whether the caller may do what its messages ask for.
	Authorizer interface {
		Authorize(r *Request) *Refusal
	}
)

// Route is the front end of one path.
type Route struct {
	Methods string // that a web page may use here; browsers are told
	// Check looks at the headers, before the Door reads the body. If it returns false it
	// has answered the request. It may be nil.
	Check func(w http.ResponseWriter, r *Request) bool
	// Serve answers the request. The Door has read the messages of a POST.
	Serve func(w http.ResponseWriter, r *Request)
}

// Options are what a Door needs. Admit and Budget must be set. Other stages may be nil,
// and then let every request pass.
type Options struct {
	Admit        Admitter
	Authenticate Authenticator
	Locate       Locator
	Budget       Budget
	Authorize    Authorizer
	Routes       map[string]Route // by path, exactly
	Elsewhere    http.HandlerFunc // answers for all other paths
	// Closing is closed when clients are to connect to other instances. From then on
	// every answer outside a session has the header Connection: close; no other instance
	// has the sessions of this one. http.Server can send that header, too, but closes
	// idle connections at the same moment, and so loses requests that clients have just
	// sent. It may be nil.
	Closing <-chan struct{}
	Metrics *Metrics
	// Refusals logs the requests that the adapter refuses; may be nil.
	Refusals *Refusals
	// Closed gets every record when the Door closes it, for tests and audits; may be nil.
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

// passage is one request in the Door. One allocation holds all that the Door needs for
// it.
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
	// A front end panics to abort its answer on purpose. The Door closes the record then,
	// too.
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

// closing returns the refusal for a request whose body the Door does not read to its end.
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
	front.Refuse(w, f.Status, id, f.Code, f.Text)
}
