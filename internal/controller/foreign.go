package controller

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// isForeign says whether an object of that name belongs to another owner. If it does, the
// server is refused.
func (r *Reconciler) isForeign(ctx context.Context, s *state, object desired) (bool, error) {
	foreign, err := r.findForeign(ctx, s, object)
	if foreign != nil {
		s.refuseForeign(object.Kind.Kind, foreign)
	}
	return foreign != nil, err
}

// findForeign returns the object of that name if it belongs to another owner, or nil. The
// cache has only objects with Slipway's label, so the API server is asked for others.
func (r *Reconciler) findForeign(ctx context.Context, s *state, object desired) (metav1.Object, error) {
	if object.live != nil {
		if ownedBy(object.live, s.server) {
			return nil, nil
		}
		return object.live, nil
	}
	if object.isOurs {
		return nil, nil
	}
	found, err := find(ctx, r.Live, s.in(object.name), metadataOf(object.Kind))
	if err != nil || found == nil || ownedBy(found, s.server) {
		return nil, err
	}
	return found, nil
}

func ownedBy(object metav1.Object, server *mcpv1alpha1.MCPServer) bool {
	return metav1.IsControlledBy(object, server)
}

func (s *state) in(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.name.Namespace, Name: name}
}

// foreignRecheck is how soon the manager looks again at a name that an object of another owner has. The manager
// gets no events of objects without its label.
const foreignRecheck = 30 * time.Second

// leftoverRecheck is how soon the manager looks again whether an object of an earlier server is gone.
const leftoverRecheck = time.Second

func (s *state) refuseForeign(kind string, object metav1.Object) {
	name := object.GetName()
	if s.isLeftover(object) {
		s.wait(mcpv1alpha1.ReasonProgressing, fmt.Sprintf("%s %s of an earlier MCPServer of this name is still being deleted", kind, name))
		s.again(leftoverRecheck)
		return
	}
	s.refuse(mcpv1alpha1.ReasonNameConflict, fmt.Sprintf("%s %s exists and does not belong to this MCPServer: %s; Slipway does not touch it", kind, name, reason.DeleteOther))
	s.again(foreignRecheck)
}

// isLeftover says whether an object belongs to an earlier server of this name. It goes soon.
func (s *state) isLeftover(object metav1.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && isMCPServer(owner) && owner.Name == s.name.Name
}
