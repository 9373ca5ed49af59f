package controller

import (
	"context"
	"fmt"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/reason"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// applyCatalog keeps what the server offers in a ConfigMap, for people and programs. The status
// names the ConfigMap, and comes after it.
func (r *Reconciler) applyCatalog(ctx context.Context, s *state) error {
	catalog := status.Representative(s.pods, s.results)
	if catalog == nil || catalog.Stored == nil || storedCatalog(s) == catalog.Summary.Catalog.Digest {
		return nil
	}
	object := r.desired(s, workload.ObjectCatalog, workload.Parts{Server: s.server, Catalog: catalog.Stored})
	foreign, err := r.findForeign(ctx, s, object)
	if err != nil {
		return err
	}
	if foreign != nil { // the catalog is for information: the server works without it
		r.warnOnce(s, reasonCatalogConflict, actionProbe, fmt.Sprintf("ConfigMap %s exists and does not belong to this MCPServer, so the catalog is not stored: %s", object.name, reason.DeleteOther))
		s.again(foreignRecheck)
		return nil
	}
	s.unwarn(reasonCatalogConflict)
	object.isOurs = true
	return r.applyOne(ctx, s, object)
}

// storedCatalog is the digest of what the ConfigMap holds: nothing to rely on, if
// a user has changed it since it was applied.
func storedCatalog(s *state) string {
	live := s.live[workload.ObjectCatalog]
	if live == nil || !ownedBy(live, s.server) || s.memory.isEdited(workload.ObjectCatalog, live) {
		return ""
	}
	return live.GetAnnotations()[mcpv1alpha1.AnnotationCatalogDigest]
}

// catalogConfigMap is the name of the ConfigMap with the catalog, if there is one of this server.
func catalogConfigMap(s *state) string {
	if s.has(workload.ObjectCatalog) {
		return workload.CatalogName(s.server)
	}
	return ""
}
