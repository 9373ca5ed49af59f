package news

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

const (
	// mostStreams is how many other pods may listen at a time. Each has two streams for a moment, when it wants to hear of more.
	mostStreams = 1024
	// askTimeout is for a request for news to arrive.
	askTimeout = 10 * time.Second
	// settleTimeout is for the processes here to take the subscription of another pod.
	settleTimeout = 10 * time.Second
)

// Handler returns a handler that tells other pods of changes, and gives all other requests to the next one. It is for
// the port for other pods.
func (n *News) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != Path:
			next.ServeHTTP(w, r)
		case r.Method != http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			n.serve(w, r)
		}
	})
}

func (n *News) serve(w http.ResponseWriter, r *http.Request) {
	defer n.told.Add(-1)
	if n.told.Add(1) > mostStreams {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(askTimeout)) // fails only without a connection
	memory := n.options.Memory.Account(nil)
	body, err := readAsk(r.Body, memory.Take) //nolint:forbidigo // of another pod, on the port for pods
	defer func() { memory.Change(-int(memory.Held())) }()
	_ = control.SetReadDeadline(time.Time{})
	if errors.Is(err, errNoRoom) {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	wants, err := decodeWants(body)
	if err != nil {
		front.RefusePlain(w, http.StatusBadRequest, err.Error())
		return
	}
	settling, cancel := context.WithTimeout(r.Context(), settleTimeout)
	defer cancel()
	changes := newHeard(len(wants))
	id, leave := n.enter(changes)
	defer leave()
	running, stop, err := n.options.Hub.Observe(settling, wants, changes)
	if err != nil {
		front.RefusePlain(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer stop()
	n.asked.Add(int64(len(wants)))
	defer n.asked.Add(-int64(len(wants)))
	first := event{Begins: true, Stream: id, Follows: n.end(r.URL.Query().Get(replacesParameter))}
	for i := range running {
		if running[i] {
			first.Running = append(first.Running, i)
		}
	}
	events := front.StartEvents(w, http.StatusOK, front.WriteTimeout, nil)
	events.Append(rpc.Event{Data: encode(&first)})
	if events.Flush() == nil {
		events.Run(r.Context(), front.KeepAliveInterval, changes)
	}
}

// replacesParameter is in the query of a request for news. It has the id of the stream that ends when this one has begun.
const replacesParameter = "replaces"

// enter gives a stream an id, until leave is called.
func (n *News) enter(changes *heard) (id string, leave func()) {
	id = rand.Text()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[id] = changes
	return id, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.open, id)
	}
}

// end ends a stream after all that it has to tell. The stream that replaces it tells of everything from now on. end reports
// whether there was one that had not ended before.
func (n *News) end(id string) bool {
	n.mu.Lock()
	changes := n.open[id]
	n.mu.Unlock()
	return changes != nil && changes.end()
}

var errNoRoom = errors.New("there is no room for what another pod wants")

// readAsk reads the body of a request for news. What it wants takes about as much memory again.
func readAsk(from io.Reader, take func(bytes int) bool) (body []byte, err error) {
	for piece := make([]byte, 32<<10); ; {
		read, err := from.Read(piece)
		if len(body)+read > mostAsked || !take(2*read) {
			return nil, errNoRoom
		}
		body = append(body, piece[:read]...)
		switch {
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}
