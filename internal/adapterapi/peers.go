package adapterapi

import (
	"encoding/json"
	"errors"
	"fmt"
)

// PeersVersion is that of Peers. An adapter ignores members that it does not know: without the list it only learns
// more slowly which pods are gone.
const PeersVersion = 1

// MaxPeersBytes bounds a list. A pod takes about 100 bytes of it.
const MaxPeersBytes = 512 << 10

// Peers is the manager's list of the pods of a server.
type Peers struct {
	Version int `json:"version"`
	// Generation orders lists: an adapter goes by the highest that it has seen. Each leader among the managers counts
	// from a higher number than those before it, so that no adapter listens to a former leader.
	Generation int64     `json:"generation"`
	Pods       []PeerPod `json:"pods"`
}

// PeerPod is one pod of a server.
type PeerPod struct {
	UID string `json:"uid"`
	// Doubted says that the manager cannot reach the pod either.
	Doubted bool `json:"doubted,omitempty"`
}

// Encode makes the document.
func (p Peers) Encode() (Document, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return Document{}, fmt.Errorf("encode list of pods: %w", err)
	}
	return Document{p.Generation, SettingsDigest(text), string(text)}, nil
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
