package controller

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/internal/workload"
)

// applied is what was applied of one object, and the object that came of it.
type applied struct {
	hash    [sha256.Size]byte
	uid     types.UID
	version string
}

// isApplied says whether an object is as it was when the same was last applied, so that the API server
// is not asked to do nothing.
func (m *memory) isApplied(id workload.ObjectID, hash [sha256.Size]byte, live client.Object) bool {
	return live != nil && m.applied[id] == applied{hash, live.GetUID(), versionOf(live)}
}

// isEdited says whether an object is not as it was left.
func (m *memory) isEdited(id workload.ObjectID, live client.Object) bool {
	last, ok := m.applied[id]
	return ok && (last.uid != live.GetUID() || last.version != versionOf(live))
}

// versionOf is a text that changes when what is applied may have been changed by
// others. Neither a status nor annotations are applied to what has a generation, so
// that is enough, with the labels that it does not cover.
func versionOf(object metav1.Object) string {
	if generation := object.GetGeneration(); generation > 0 {
		return fmt.Sprint(generation, object.GetLabels())
	}
	return object.GetResourceVersion()
}

// answerOf is the metadata of what the API server answered. The client has written the answer
// into the configuration that it has applied.
func answerOf(config runtime.ApplyConfiguration) (answer metav1.PartialObjectMetadata, err error) {
	encoded, err := json.Marshal(config)
	if err == nil {
		err = json.Unmarshal(encoded, &answer)
	}
	return answer, err
}

// noteApplied remembers what was applied, and returns what the API server answered.
func (m *memory) noteApplied(id workload.ObjectID, hash [sha256.Size]byte, config runtime.ApplyConfiguration) metav1.PartialObjectMetadata {
	answer, err := answerOf(config)
	if err != nil {
		return answer // it will be applied again
	}
	if m.applied == nil {
		m.applied = map[workload.ObjectID]applied{}
	}
	m.applied[id] = applied{hash, answer.UID, versionOf(&answer)}
	return answer
}
