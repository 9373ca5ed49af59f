package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A server has one memory until it is forgotten, and another of the same name begins with none.
func TestMemories(t *testing.T) {
	var all memories
	other := types.NamespacedName{Namespace: someServer.Namespace, Name: "other"}
	all.of(someServer).sessionsAt = time.Unix(1, 0)
	if all.of(someServer).sessionsAt.IsZero() || !all.of(other).sessionsAt.IsZero() {
		t.Error("the memory of a server is not its own")
	}
	all.forget(someServer, nil)
	if !all.of(someServer).sessionsAt.IsZero() || len(all.servers) != 2 {
		t.Errorf("something is left of a server that is gone: %v", all.servers)
	}
}
