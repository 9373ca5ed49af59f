package edge

import (
	"maps"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Stages that decide by policy. Each can be replaced without the others.
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
	// Locator reports whether this instance answers a request. Before the Door reads the
	// body, BySession decides by the id of a session that this instance does not have; afterwards,
	// ByState decides by the task or state in the message, and ByGroup by the group of the caller, which
	// it asks for if that matters. If one returns false, it has answered the request, or another instance has. ByGroup may
	// give the request a context that ends with fault.ErrMoved when another instance serves the group.
	Locator interface {
		BySession(w http.ResponseWriter, r *Request, id string) bool
		ByState(w http.ResponseWriter, r *Request) bool
		ByGroup(w http.ResponseWriter, r *Request, of func(r *Request) string) bool
	}
	// Placer finds a slot for the session that a request opens, here or at another instance. Front ends ask
	// for it by Request.Place. If Place returns neither a slot nor an error, another instance has answered the
	// request.
	Placer interface {
		Place(w http.ResponseWriter, r *Request, in *session.Registry) (*session.Slot, error)
	}
	// Authorizer decides whether the caller may do what its messages ask for. The function is called
	// when the Door is done with the request.
	Authorizer interface {
		Authorize(r *Request) (over func(), refused *Refusal)
	}
)

// anything is the Locator, the Placer and the Authorizer of a Door that has none. It lets every request
// pass.
type anything struct{}

func (anything) BySession(http.ResponseWriter, *Request, string) bool { return true }

func (anything) ByState(http.ResponseWriter, *Request) bool { return true }

func (anything) ByGroup(http.ResponseWriter, *Request, func(*Request) string) bool { return true }

func (anything) Place(_ http.ResponseWriter, r *Request, in *session.Registry) (*session.Slot, error) {
	return in.Reserve(r.Context(), &r.Caller)
}

func (anything) Authorize(*Request) (func(), *Refusal) { return nothing, nil }

func nothing() {}

// Route is the front end of one path.
type Route struct {
	Methods string // that a web page may use at the path; the Door tells browsers
	// Public says that callers need no token. The route must reveal nothing that they may not know.
	Public bool
	// Missing returns the id of the session that the headers or the URL of a request name, if this instance
	// does not have it. It is empty for all other requests. It may be nil, for a route without sessions.
	Missing func(r *Request) string
	// Group returns the name of the callers for whom the server keeps one state outside of sessions, if the
	// request needs that. It is alike at all instances, and empty for all other requests. It is for requests whose
	// messages the Door has read. It may be nil, for a route without such requests.
	Group func(r *Request) string
	// Check looks at the headers, before the Door reads the body. If it returns false it
	// has answered the request. It may be nil.
	Check func(w http.ResponseWriter, r *Request) bool
	// Serve answers the request. The Door has read the messages of a POST.
	Serve func(w http.ResponseWriter, r *Request)
}

// Options configure a Door. Admit, Budget and Elsewhere must be set. A Door without another
// stage lets every request pass there.
type Options struct {
	Admit        Admitter
	Authenticate Authenticator
	Locate       Locator
	Place        Placer
	Budget       *Memory // bounds the bodies that the Door reads
	Authorize    Authorizer
	Routes       map[string]Route // by path, exactly
	Elsewhere    http.HandlerFunc // answers for all other paths
	// Closing closes when clients should connect to other instances. From then on every
	// answer outside a session has the header Connection: close, and so has every 404, which
	// ends a session. Other answers in a session do not, because no other instance has the
	// session. http.Server can send that header,
	// too, but closes idle connections at the same moment, and so loses requests that
	// clients have just sent. It may be nil.
	Closing <-chan struct{}
	Metrics *Metrics
	// Refusals logs the requests that the adapter refuses; may be nil.
	Refusals *Refusals
	// Audit writes audit lines; may be nil.
	Audit *Auditor
	// Closed gets every record when the Door closes it, for tests and audits; may be nil.
	Closed func(Record)
}

// Door is the handler of all requests of clients.
type Door struct{ options Options }

// New returns a Door.
func New(options Options) *Door {
	if options.Authenticate == nil {
		options.Authenticate = Unverified{}
	}
	if options.Locate == nil {
		options.Locate = anything{}
	}
	if options.Place == nil {
		options.Place = anything{}
	}
	if options.Authorize == nil {
		options.Authorize = anything{}
	}
	if options.Metrics == nil {
		options.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	return &Door{options}
}

func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := &Request{Request: r, door: d, Record: Record{HTTPMethod: r.Method, Path: r.URL.Path, began: time.Now()}}
	request.writer = answerWriter{w, request}
	// A front end panics to abort its answer on purpose. The Door closes the record then,
	// too.
	defer d.close(request)
	d.pass(&request.writer, request)
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
	if !route.Public && !d.authenticate(w, r) {
		return
	}
	defer r.release()
	if !d.receive(w, r, route) {
		return
	}
	if !route.Public {
		over, refused := o.Authorize.Authorize(r)
		if refused != nil {
			r.deny(w, refused)
			return
		}
		defer over()
	}
	route.Serve(w, r)
}

// receive finds out whether this instance answers a request, and reads it. If it returns false the request
// is answered.
func (d *Door) receive(w *answerWriter, r *Request, route Route) bool {
	if route.Missing != nil && !d.located(w, r, route.Missing(r)) || route.Check != nil && !route.Check(w, r) {
		return false
	}
	return r.Method != http.MethodPost || d.take(w, r, route)
}

// located reports whether this instance answers a request. The manager's probe asks about this one.
func (d *Door) located(w http.ResponseWriter, r *Request, missing string) bool {
	return missing == "" || r.Caller.Probe || d.options.Locate.BySession(w, r, missing)
}

// take reads the messages of a POST that this instance answers. If it returns false the request is
// answered.
func (d *Door) take(w http.ResponseWriter, r *Request, route Route) bool {
	if refused := r.read(w); refused != nil {
		refused.write(w, nil)
		return false
	}
	if !r.Caller.Probe && !d.takes(w, r, route) {
		return false
	}
	r.note()
	return true
}

// takes reports whether this instance answers the messages of a POST.
func (d *Door) takes(w http.ResponseWriter, r *Request, route Route) bool {
	return d.options.Locate.ByState(w, r) && (route.Group == nil || d.options.Locate.ByGroup(w, r, route.Group))
}

// authenticate names the caller. If it returns false it has answered the request.
func (d *Door) authenticate(w http.ResponseWriter, r *Request) bool {
	from, refused := d.options.Authenticate.Authenticate(r.Request)
	if refused != nil {
		r.Caller.Address = addressOf(r.RemoteAddr)
		r.deny(w, refused)
		return false
	}
	r.Caller = from
	return true
}

// deny answers a request that its caller may not make, and records why.
func (r *Request) deny(w http.ResponseWriter, refused *Refusal) {
	r.toAudit().denied = refused.Reason
	r.wait(refused.Delay)
	refused.write(w, r.idOfSole())
}

// wait holds an answer back. It ends early if the client goes away, or the adapter drains.
func (r *Request) wait(delay time.Duration) {
	if delay <= 0 {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-r.door.options.Closing:
	}
}

// Refusal says why a stage refuses a request.
type Refusal struct {
	Status int    // of HTTP
	Code   int    // of JSON-RPC
	Text   string // for the client
	Header http.Header
	// Reason is why the caller may not do what it asks for, for audits. It is empty if the request is
	// refused for another reason.
	Reason string
	// Delay is how long the door delays the answer, to slow down a client that retries at once and without limit.
	Delay time.Duration
	// Close closes the connection. It is for a body that the Door has not read to its end:
	// reading the rest costs more than a new connection.
	Close bool
}

// Write answers a request that this instance cannot pass on.
func (f *Refusal) Write(w http.ResponseWriter) { f.write(w, nil) }

func (f *Refusal) write(w http.ResponseWriter, id []byte) {
	maps.Copy(w.Header(), f.Header)
	if f.Close {
		w.Header().Set("Connection", "close")
	}
	front.Refuse(w, f.Status, id, f.Code, f.Text)
}
