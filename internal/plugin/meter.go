package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/plugin/link"
	"github.com/slipway-mcp/slipway/internal/plugin/usage"
	"github.com/slipway-mcp/slipway/internal/text"
)

const (
	// mostLinks bounds how many pods stay connected between two looks: a process may have 256 files open on
	// some systems. With more pods, each look opens new connections.
	mostLinks = 64
	// shownNotes bounds how many pods are named that did not answer.
	shownNotes = 5
	noteBytes  = 300
)

// meter reads the metrics of adapters, through the API server.
type meter struct {
	*environment
	api     client.Client
	config  *rest.Config
	answers map[types.UID]answer // of pods

	mu    sync.Mutex // guards links
	links map[types.UID]*wire
}

// answer is what a pod said, at the last look and at the one before, or why it did not.
type answer struct {
	before, now *usage.Scrape
	err         error
}

// wire is a connection to a pod, and a client that uses it.
type wire struct {
	*link.Pod
	http *http.Client
}

// unconnected is the error of a connection that the API server did not make.
type unconnected struct{ error }

func (u unconnected) Unwrap() error { return u.error }

func (e *environment) newMeter() (*meter, error) {
	api, err := e.client()
	if err != nil {
		return nil, err
	}
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return &meter{environment: e, api: api, config: config, links: map[types.UID]*wire{}}, nil
}

// measure asks pods for their metrics. Pods that did not answer before are asked again only if that is
// wanted: each may take the whole patience of the user. It fails if the user has the right to ask none.
func (m *meter) measure(ctx context.Context, pods []corev1.Pod, again bool) error {
	m.forget(pods)
	answers := make([]answer, len(pods))
	eachPod(pods, func(i int) {
		last := m.answers[pods[i].UID]
		if last.err != nil && !again {
			answers[i] = last
			return
		}
		said, err := m.scrape(ctx, &pods[i], len(pods) <= mostLinks)
		answers[i] = answer{before: last.now, now: said, err: err}
	})
	m.answers = map[types.UID]answer{}
	for i := range pods {
		m.answers[pods[i].UID] = answers[i]
	}
	return m.checkRights(ctx, pods)
}

// forget closes the connections to pods that are gone.
func (m *meter) forget(pods []corev1.Pod) {
	stay := map[types.UID]bool{}
	for i := range pods {
		stay[pods[i].UID] = true
	}
	for uid := range m.links {
		if !stay[uid] {
			m.drop(uid)
		}
	}
}

// drop closes the connection to a pod, if there is one.
func (m *meter) drop(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if open := m.links[uid]; open != nil {
		_ = open.Close()
		delete(m.links, uid)
	}
}

// scrape reads the metrics of a pod. The connection stays open for the next time if it is to be kept.
func (m *meter) scrape(ctx context.Context, pod *corev1.Pod, keep bool) (said *usage.Scrape, err error) {
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	defer func() {
		if err != nil || !keep {
			m.drop(pod.UID)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", podPatience)
		}
	}()
	open, err := m.wire(ctx, pod)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1"+adapterapi.PathMetrics, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := open.http.Do(request)
	if address, ok := errors.AsType[*url.Error](err); ok {
		return nil, address.Err // the URL is the same for every pod, and no help
	}
	if err != nil {
		return nil, err
	}
	at := time.Now()
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("its adapter answers %s", response.Status)
	}
	return usage.Parse(response.Body, at)
}

// wire is the connection to a pod, which is made if there is none.
func (m *meter) wire(ctx context.Context, pod *corev1.Pod) (*wire, error) {
	m.mu.Lock()
	open := m.links[pod.UID]
	m.mu.Unlock()
	if open != nil && !isDone(open.Pod) {
		return open, nil
	}
	m.drop(pod.UID)
	opened, err := link.Open(ctx, m.config, client.ObjectKeyFromObject(pod))
	if err != nil {
		return nil, unconnected{err}
	}
	open = &wire{opened, opened.Client(mcpv1alpha1.AdapterAdminPort)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.links[pod.UID] = open
	return open, nil
}

// checkRights says of pods that could not be reached whether a right is missing. It fails if one is and
// no pod answered, also in other namespaces.
func (m *meter) checkRights(ctx context.Context, pods []corev1.Pod) error {
	byNamespace := map[string]error{}
	var missing error
	for i := range pods {
		failed := m.answers[pods[i].UID]
		if _, ok := errors.AsType[unconnected](failed.err); !ok {
			continue
		}
		namespace := pods[i].Namespace
		if _, checked := byNamespace[namespace]; !checked {
			byNamespace[namespace] = nil
			if err := m.missingRight(ctx, m.api, namespace, failed.err); explain(err).code == exitCredentials {
				byNamespace[namespace] = err
			}
		}
		if lacked := byNamespace[namespace]; lacked != nil {
			failed.err, missing = lacked, lacked
			m.answers[pods[i].UID] = failed
		}
	}
	if missing != nil && m.answered() == 0 {
		return missing
	}
	return nil
}

// answered is how many pods answered.
func (m *meter) answered() int {
	number := 0
	for _, said := range m.answers {
		if said.err == nil {
			number++
		}
	}
	return number
}

// notes say why pods did not answer, each reason once where it is the same for all.
func (m *meter) notes(pods []corev1.Pod) []string {
	var notes []string
	told := map[string]bool{}
	for i := range pods {
		err := m.answers[pods[i].UID].err
		if err == nil {
			continue
		}
		note := fmt.Sprintf("Pod %s does not tell what it does: %v", client.ObjectKeyFromObject(&pods[i]), err)
		if lacked, ok := errors.AsType[*failure](err); ok {
			note = lacked.Error() + ". " + lacked.next
		}
		if !told[note] {
			notes = append(notes, text.Line(note, noteBytes))
		}
		told[note] = true
	}
	if more := len(notes) - shownNotes; more > 0 {
		notes = append(notes[:shownNotes], fmt.Sprintf("%d more pods do not tell what they do.", more))
	}
	return notes
}

func (m *meter) close() { m.forget(nil) }
