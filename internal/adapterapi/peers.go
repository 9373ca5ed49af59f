package adapterapi

import (
	"encoding/json"
	"errors"
	"fmt"
)

// PeersVersion is that of Peers. An adapter ignores members that it does not know: without the list it only learns
// more slowly which pods are gone.
const PeersVersion = 1

// MaxPeersBytes bounds a list. A pod takes about 250 bytes of it.
const MaxPeersBytes = 512 << 10

// Peers is the manager's list of the pods of a server.
type Peers struct {
	Version int `json:"version"`
	// Generation orders lists: an adapter goes by the highest that it has seen. Each leader among the managers counts
	// from a higher number than those before it, so that no adapter listens to a former leader.
	Generation int64     `json:"generation"`
	Pods       []PeerPod `json:"pods"`
	// Partial says that there are more pods than a list has room for: a pod that it lacks may still exist.
	Partial bool `json:"partial,omitempty"`
	// Gone are the UIDs of pods that were there and are no more. A pod that begins later had no list with them.
	Gone []string `json:"gone,omitempty"`
}

// PeerPod is one pod of a server.
type PeerPod struct {
	UID string `json:"uid"`
	// Address is where the pod takes requests of other pods: an IP address and a port. It is empty for a pod that
	// takes none.
	Address string `json:"address,omitempty"`
	// Zone is the topology zone of the pod's node.
	Zone string `json:"zone,omitempty"`
	// Ready says that the Service leads clients to the pod, and Verified that the manager's probe of it has succeeded.
	Ready    bool `json:"ready,omitempty"`
	Verified bool `json:"verified,omitempty"`
	// Newest says that the pod is of the template that a rollout leads to.
	Newest bool `json:"newest,omitempty"`
	// Cordoned says that new sessions should begin at other pods. It ends nothing, and it counts only as long as the
	// list does.
	Cordoned bool `json:"cordoned,omitempty"`
	// Terminating says that the pod was deleted, and drains.
	Terminating bool `json:"terminating,omitempty"`
	// DrainSeconds is how long the pod has for its drain, counted from the beginning of the drain, if that is less than
	// its own timeout; 0 if the manager does not know of less.
	DrainSeconds int64 `json:"drainSeconds,omitempty"`
	// Closing says that all pods of the server end, so that sessions without a call in flight end at once.
	Closing bool `json:"closing,omitempty"`
	// Doubted says that the manager cannot reach the pod either.
	Doubted bool `json:"doubted,omitempty"`
	// Sessions and Limit are the sessions of the pod and how many it takes, as the manager has read them last.
	Sessions int64 `json:"sessions,omitempty"`
	Limit    int64 `json:"limit,omitempty"`
	// Spares are the processes of the pod that wait for a session.
	Spares int64 `json:"spares,omitempty"`
}

// Encode makes the document.
func (p Peers) Encode() (Document, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return Document{}, fmt.Errorf("encode list of pods: %w", err)
	}
	return Document{p.Generation, SettingsDigest(text), string(text)}, nil
}

// Fit returns the list without the pods at its end that MaxPeersBytes has no room for.
func (p Peers) Fit() (Peers, error) {
	whole, err := p.Encode()
	if err != nil || len(whole.Text) <= MaxPeersBytes {
		return p, err
	}
	pods := p.Pods
	p.Pods, p.Partial = []PeerPod{}, true
	rest, err := p.Encode()
	if err != nil {
		return p, err
	}
	room := MaxPeersBytes - len(rest.Text)
	for i := range pods {
		text, err := json.Marshal(&pods[i])
		if err != nil {
			return p, fmt.Errorf("encode pod: %w", err)
		}
		if room -= len(text) + len(","); room < 0 {
			p.Pods = pods[:i]
			break
		}
	}
	return p, nil
}

// DecodePeers reads a list. It takes all of it or nothing.
func DecodePeers(text []byte) (Peers, error) {
	var list Peers
	if err := json.Unmarshal(text, &list); err != nil {
		return Peers{}, fmt.Errorf("decode list of pods: %w", plain(err))
	}
	switch {
	case list.Version != PeersVersion:
		return Peers{}, fmt.Errorf("decode list of pods: version is %d, and this adapter reads %d", list.Version, PeersVersion)
	case list.Generation < 1:
		return Peers{}, fmt.Errorf("decode list of pods: generation is %d, want at least 1", list.Generation)
	case len(list.Pods) == 0:
		return Peers{}, errors.New("decode list of pods: it has none, not even the one that it is for")
	}
	return list, nil
}

// PeersSubject is a push of the list of pods, as SettingsSubject is for settings.
func PeersSubject(podUID string) Subject {
	return Subject{Use: UsePeerList, PodUID: podUID, Method: "PUT", Path: PathPeers}
}
