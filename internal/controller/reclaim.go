package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// reclaim makes fields ours that another manager has written where everything is ours.
// Applying then removes what is not wanted: by itself it leaves alone what others have
// added to a list, such as a renamed port beside the one with our name.
func (r *Reconciler) reclaim(ctx context.Context, s *state, object desired) error {
	if object.Claims == nil {
		return nil
	}
	live := metadataOf(object.Kind)
	if err := r.Live.Get(ctx, s.in(object.name), live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil // it was deleted; applying recreates it
		}
		return fmt.Errorf("get %s %s: %w", object.Kind.Kind, s.in(object.name), err)
	}
	fields, changed, err := moveFields(live.ManagedFields, object.Claims)
	if err != nil || !changed {
		return err
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": fields},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.ResourceVersion}, // or a conflict
	})
	if err != nil {
		return fmt.Errorf("reclaim %s %s: %w", object.Kind.Kind, s.in(object.name), err)
	}
	err = r.Client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch))
	if apierrors.IsConflict(err) {
		s.again(lastLagRetry)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reclaim %s %s: %w", object.Kind.Kind, s.in(object.name), err)
	}
	return nil
}

// moveFields moves claimed fields of others to us, and says whether there were any.
func moveFields(entries []metav1.ManagedFieldsEntry, claimed []fieldpath.Path) (moved []metav1.ManagedFieldsEntry, changed bool, err error) {
	ours := -1
	taken := &fieldpath.Set{}
	for i := range entries {
		left, theirs, err := split(&entries[i], claimed)
		if err != nil {
			return nil, false, err
		}
		if isOurs(&entries[i]) {
			ours = len(moved)
		}
		entry := *entries[i].DeepCopy()
		if !theirs.Empty() {
			taken, changed = taken.Union(theirs), true
			if left.Empty() {
				continue
			}
			if entry.FieldsV1, err = encode(left); err != nil {
				return nil, false, err
			}
		}
		moved = append(moved, entry)
	}
	if !changed || ours < 0 {
		return nil, false, nil // it was never applied: applying is what comes next
	}
	mine, err := decode(moved[ours].FieldsV1)
	if err == nil {
		moved[ours].FieldsV1, err = encode(mine.Union(taken))
	}
	return moved, true, err
}

func isOurs(entry *metav1.ManagedFieldsEntry) bool {
	return entry.Manager == mcpv1alpha1.ManagedBy && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
}

// split divides the fields of another field manager into those that are not claimed and
// those that are. Fields that it applied, or wrote through a subresource, are never claimed.
func split(entry *metav1.ManagedFieldsEntry, claimed []fieldpath.Path) (left, taken *fieldpath.Set, err error) {
	taken = &fieldpath.Set{}
	if entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.Subresource != "" || entry.FieldsV1 == nil {
		return nil, taken, nil
	}
	all, err := decode(entry.FieldsV1)
	if err != nil {
		return nil, nil, err
	}
	all.Iterate(func(path fieldpath.Path) {
		for _, claim := range claimed {
			if len(path) >= len(claim) && path[:len(claim)].Equals(claim) {
				taken.Insert(path.Copy())
			}
		}
	})
	return all.Difference(taken), taken, nil
}

func decode(fields *metav1.FieldsV1) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if err := set.FromJSON(bytes.NewReader(fields.GetRawBytes())); err != nil {
		return nil, fmt.Errorf("read managed fields: %w", err)
	}
	return set, nil
}

func encode(fields *fieldpath.Set) (*metav1.FieldsV1, error) {
	encoded, err := fields.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("write managed fields: %w", err)
	}
	return metav1.NewFieldsV1(string(encoded)), nil
}
