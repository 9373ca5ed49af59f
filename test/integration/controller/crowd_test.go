package controller

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// crowd answers for the adapters of all pods of a server: with as many sessions as the test says. It takes lists of pods,
// and remembers them.
type crowd struct {
	t       *testing.T
	signing *signing

	mu       sync.Mutex
	sessions map[types.UID]int64
	mute     map[types.UID]bool  // pods that do not answer
	told     map[types.UID]int64 // sessions that the manager has read
	lists    map[types.UID]adapterapi.Peers
	cordons  map[types.UID]map[string]bool // that any list of a pod had
}

const crowdLimit = 20 // sessions for each pod

// newCrowd listens at the address of all pods of the server.
func newCrowd(t *testing.T, server types.NamespacedName, address string) *crowd {
	t.Helper()
	c := &crowd{
		t: t, signing: &signing{t: t, server: server},
		sessions: map[types.UID]int64{}, mute: map[types.UID]bool{}, told: map[types.UID]int64{}, lists: map[types.UID]adapterapi.Peers{},
		cordons: map[types.UID]map[string]bool{},
	}
	serve(t, net.JoinHostPort(address, strconv.Itoa(mcpv1alpha1.AdapterPort)), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized) // nothing to verify
	}))
	administrators := http.NewServeMux()
	administrators.HandleFunc("GET "+adapterapi.PathCatalog, c.answer)
	administrators.HandleFunc("PUT "+adapterapi.PathPeers, c.take)
	serve(t, net.JoinHostPort(address, strconv.Itoa(mcpv1alpha1.AdapterAdminPort)), administrators)
	return c
}

// answer says how many sessions a pod has, and which list.
func (c *crowd) answer(w http.ResponseWriter, r *http.Request) {
	proof, pod, ok := c.signing.verify(r.Header.Get(adapterapi.HeaderProof), adapterapi.CatalogSubject)
	if !ok {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mute[pod] {
		panic(http.ErrAbortHandler)
	}
	state := c.stateLocked(pod)
	body, err := json.Marshal(adapterapi.Report{Ready: true, Peers: &state})
	if err != nil {
		c.t.Error(err)
	}
	sessions := adapterapi.Sessions{Open: c.sessions[pod], Limit: crowdLimit}
	c.told[pod] = sessions.Open
	w.Header().Set(adapterapi.HeaderSessions, sessions.String())
	w.Header().Set(adapterapi.HeaderAnswer, proof.Seal(adapterapi.Answer{Status: http.StatusOK, Sessions: sessions.String(), Body: body}))
	_, _ = w.Write(body)
}

// take takes a list of pods.
func (c *crowd) take(w http.ResponseWriter, r *http.Request) {
	proof, pod, ok := c.signing.verify(r.Header.Get(adapterapi.HeaderProof), adapterapi.PeersSubject)
	text, err := io.ReadAll(r.Body)
	if !ok || err != nil || !proof.OpensBody(r.Header.Get(adapterapi.HeaderBody), text) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	list, err := adapterapi.DecodePeers(text)
	if err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists[pod] = list
	for _, listed := range list.Pods {
		if listed.Cordoned && c.cordons[pod] == nil {
			c.cordons[pod] = map[string]bool{}
		}
		if listed.Cordoned {
			c.cordons[pod][listed.UID] = true
		}
	}
	body, err := json.Marshal(c.stateLocked(pod))
	if err != nil {
		c.t.Error(err)
	}
	w.Header().Set(adapterapi.HeaderAnswer, proof.Seal(adapterapi.Answer{Status: http.StatusOK, Body: body}))
	_, _ = w.Write(body)
}

func (c *crowd) stateLocked(pod types.UID) adapterapi.AccessState {
	state := adapterapi.AccessState{Version: adapterapi.PeersVersion}
	if list, ok := c.lists[pod]; ok {
		document, err := list.Encode()
		if err != nil {
			c.t.Error(err)
		}
		state.Generation, state.Digest = document.Generation, document.Digest
	}
	return state
}

// open has a pod have so many sessions.
func (c *crowd) open(pod types.UID, number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[pod] = number
}

// silence has a pod answer no more questions.
func (c *crowd) silence(pod types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mute[pod] = true
}

// areTold says whether the manager has read the sessions of every pod that has any.
func (c *crowd) areTold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pod, number := range c.sessions {
		if c.told[pod] != number {
			return false
		}
	}
	return true
}

// entry is what the list of one pod says of another, or of itself.
func (c *crowd) entry(of, pod types.UID) adapterapi.PeerPod {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := c.lists[of].Pods
	if i := slices.IndexFunc(pods, func(p adapterapi.PeerPod) bool { return p.UID == string(pod) }); i >= 0 {
		return pods[i]
	}
	return adapterapi.PeerPod{}
}

// generation is that of the list of a pod; 0 if it has none.
func (c *crowd) generation(of types.UID) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists[of].Generation
}

// gone are the pods that the list of a pod says are gone.
func (c *crowd) gone(of types.UID) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists[of].Gone
}

// cordoned are the pods that the list of a pod says should have no new sessions.
func (c *crowd) cordoned(of types.UID) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var uids []string
	for _, pod := range c.lists[of].Pods {
		if pod.Cordoned {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

// everCordoned are the pods of which any list of a pod has said so.
func (c *crowd) everCordoned(of types.UID) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.cordons[of]))
}

func (c *crowd) forgetCordons() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.cordons)
}
