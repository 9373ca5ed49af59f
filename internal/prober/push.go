package prober

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/text"
)

// firstPushRetry is soon: people wait for what they have changed.
const firstPushRetry = 500 * time.Millisecond

// documentKind is one of the documents that adapters take while they run.
type documentKind int

// The kinds, in the order in which an adapter is sent them: who may call what comes first.
const (
	accessDocument documentKind = iota
	settingsDocument
	peersDocument
	documentKinds
)

// documents are how each kind is sent.
var documents = [documentKinds]struct {
	name    string // of the kind of question, and for people
	path    string
	subject func(podUID string) adapterapi.Subject
}{
	accessDocument:   {kindAccess, adapterapi.PathAccess, adapterapi.AccessPushSubject},
	settingsDocument: {kindSettings, adapterapi.PathSettings, adapterapi.SettingsSubject},
	peersDocument:    {kindPeers, adapterapi.PathPeers, adapterapi.PeersSubject},
}

// document is what the adapter is to go by.
func (i *Instance) document(kind documentKind) adapterapi.Document {
	switch kind {
	case accessDocument:
		return i.Access
	case peersDocument:
		return i.Peers
	case settingsDocument, documentKinds:
	}
	return i.Settings
}

// pushing is how far an adapter is with one kind of document.
type pushing struct {
	inEffect *adapterapi.AccessState // what its adapter last said; nil before, and if it takes none
	fails    int                     // in a row
	at       time.Time               // not before this it is sent the document again
}

// asAccess is the state of settings in the type that is for both kinds.
func asAccess(state *adapterapi.SettingsState) *adapterapi.AccessState {
	if state == nil {
		return nil
	}
	return &adapterapi.AccessState{Version: state.Version, Generation: state.Generation, Digest: state.Digest}
}

// lags says whether the adapter takes documents of a kind and goes by another one than it should. One
// that takes none is of a template that has everything in flags.
func (i *instance) lags(kind documentKind) bool {
	inEffect := i.pushes[kind].inEffect
	return inEffect != nil && inEffect.Lacks(i.document(kind))
}

// lagging are the kinds of documents of which the adapter should go by another one.
func (i *instance) lagging() []documentKind {
	var kinds []documentKind
	for kind := range documentKinds {
		if i.lags(kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// pushNow are the kinds of documents that it is to be sent.
func (i *instance) pushNow(now time.Time) []documentKind {
	if i.askNext { // it did not take a document in time, and is asked first: see send
		return nil
	}
	return slices.DeleteFunc(i.lagging(), func(kind documentKind) bool { return now.Before(i.pushes[kind].at) })
}

// pushAnswer is the result of sending a document.
type pushAnswer struct {
	kind  documentKind
	sent  string // digest of what was
	state adapterapi.AccessState
	err   error
}

// send sends an instance its documents before the job asks anything. It returns an error if the adapter does not answer
// in time. The job then asks nothing more, and the next job asks first: while other pods of the server come and go, there
// is always another list to send.
func (p *Prober) send(ctx context.Context, j *job, a *answer) error {
	ctx, cancel := context.WithTimeout(ctx, j.asks.Timeout)
	defer cancel()
	for _, kind := range j.pushes {
		pushed := pushAnswer{kind: kind, sent: j.asks.document(kind).Digest}
		pushed.err = p.metrics.timed(documents[kind].name, func() (err error) {
			pushed.state, err = p.push(ctx, j.asks, kind)
			return err
		})
		a.pushes = append(a.pushes, pushed)
		if a.late = errors.Is(ctx.Err(), context.DeadlineExceeded) && silent(pushed.err); a.late {
			return pushed.err
		}
	}
	return nil
}

// settlePush records the result of sending a document.
func (p *Prober) settlePush(i *instance, a answer, pushed pushAnswer, now time.Time) {
	document, pushing := i.document(pushed.kind), &i.pushes[pushed.kind]
	log := p.options.Log.WithValues("MCPServer", klog.KRef(i.server.name.Namespace, i.server.name.Name),
		"Pod", klog.KRef(i.Pod.Namespace, i.Pod.Name), "document", documents[pushed.kind].name, "generation", document.Generation)
	present := pushed.sent == document.Digest // or else another one is wanted by now, and is sent next
	if pushed.err != nil {
		if !present {
			return
		}
		pushing.fails++
		pushing.at = now.Add(jitter(backOff(firstPushRetry, pushing.fails, lastRetry)))
		if pushing.fails == patience {
			log.Info("An adapter does not take its "+documents[pushed.kind].name+" document; the document reaches it by its volume when the kubelet brings that up to date",
				"reason", pushed.err.Error())
		}
		return
	}
	i.pushed = true
	if present {
		pushing.fails, pushing.at = 0, now.Add(firstRetry) // should it lose it
	}
	if !a.asked || a.askErr != nil { // or else it was asked since, which tells more
		i.takeState(pushed.kind, &pushed.state)
		i.etag = ""
	}
	log.V(1).Info("Sent an adapter a document", "inEffect", pushed.state.Generation)
}

// takeState takes in by which document the adapter goes.
func (i *instance) takeState(kind documentKind, state *adapterapi.AccessState) {
	i.pushes[kind].inEffect = state
	if kind == accessDocument {
		i.result.Access = boundAccess(state)
	}
}

// push sends an adapter a document, and returns what it goes by then. That can be
// newer than what was sent.
func (a *asker) push(ctx context.Context, i Instance, kind documentKind) (adapterapi.AccessState, error) {
	var state adapterapi.AccessState
	pushFailure := func(class mcpprobe.Class, status int, detail string) error {
		return &mcpprobe.Error{Class: class, Op: documents[kind].name, Status: status, Detail: detail}
	}
	content := i.document(kind).Text
	url := "http://" + address(i.IP, a.adminPort) + documents[kind].path
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(content))
	if err != nil {
		return state, pushFailure(mcpprobe.Protocol, 0, "the pod has no address that can be asked")
	}
	proof, header := adapterapi.NewProof(i.Key, documents[kind].subject(string(i.UID)), time.Now())
	request.Header.Set(adapterapi.HeaderProof, header)
	request.Header.Set(adapterapi.HeaderBody, proof.SealBody([]byte(content)))
	response, err := a.http.Do(request)
	if err != nil {
		return state, lostPush(ctx, kind, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	if err != nil {
		return state, lostPush(ctx, kind, err)
	}
	status := response.StatusCode
	if !proof.Opens(response.Header.Get(adapterapi.HeaderAnswer), adapterapi.Answer{Status: status, Body: body}) {
		return state, pushFailure(mcpprobe.Unreachable, status, "the answer does not carry the adapter's signature")
	}
	if status != http.StatusOK && status != http.StatusConflict { // which is that it has a newer one
		return state, pushFailure(mcpprobe.Protocol, status, text.Line(string(body), maxWords))
	}
	if err := json.Unmarshal(body, &state); err != nil {
		return state, pushFailure(mcpprobe.Protocol, status, "the answer is not that of an adapter")
	}
	return state, nil
}

// lostPush is for a push without an answer.
func lostPush(ctx context.Context, kind documentKind, err error) error {
	lost := &mcpprobe.Error{Class: mcpprobe.Unreachable, Op: documents[kind].name}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		lost.Class = mcpprobe.Canceled
	case ctx.Err() != nil || isTimeout(err):
		lost.Class = mcpprobe.Timeout
	default:
		lost.Detail = innermost(err)
	}
	return lost
}
