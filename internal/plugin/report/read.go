package report

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize bounds how many objects come at a time.
const pageSize = 100

// get reads an object. It is nil if it is not there, which is no problem, or cannot be read, which is noted.
func (c *collector) get(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(kind)
	if err := c.API.Get(ctx, key, found); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !apierrors.IsNotFound(err) {
			c.lackObject(kind.Kind+"s", key, err)
		}
		return nil, nil
	}
	return found, nil
}

// each calls a function for every object of a kind, page by page. What cannot be read is noted.
func (c *collector) each(ctx context.Context, kind schema.GroupVersionKind, namespace string, use func(*unstructured.Unstructured), options ...client.ListOption) error {
	for next := ""; ; {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		all := append([]client.ListOption{client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next)}, options...)
		if err := c.API.List(ctx, page, all...); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.lackObject(kind.Kind+"s", types.NamespacedName{Namespace: namespace}, err)
			return nil
		}
		for i := range page.Items {
			use(&page.Items[i])
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// list is each for objects that stay in memory.
func (c *collector) list(ctx context.Context, kind schema.GroupVersionKind, namespace string, options ...client.ListOption) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	err := c.each(ctx, kind, namespace, func(object *unstructured.Unstructured) {
		object.SetGroupVersionKind(kind) // items of a list may have none
		found = append(found, object)
	}, options...)
	return found, err
}
