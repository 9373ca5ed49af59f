package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/internal/registry"
)

// maxPullSecrets bounds how many Secrets are read for one image.
const maxPullSecrets = 32

// ImageSource asks registries, with the credentials of the cluster's pull Secrets.
type ImageSource struct {
	// Reader reads from the API server: no cache holds Secrets.
	Reader client.Reader
	// Resolver asks the registries.
	Resolver *registry.Resolver
}

var _ ImageResolver = (*ImageSource)(nil)

// Resolve reads what an image says of itself. A Secret that does not exist is left
// out, as the kubelet does.
func (s *ImageSource) Resolve(ctx context.Context, request ImageRequest) (registry.Image, error) {
	names, err := s.pullSecrets(ctx, request)
	if err != nil {
		return registry.Image{}, err
	}
	secrets := make([]corev1.Secret, 0, len(names))
	for _, name := range names[:min(len(names), maxPullSecrets)] {
		key := types.NamespacedName{Namespace: request.Namespace, Name: name}
		secret := corev1.Secret{}
		err := s.Reader.Get(ctx, key, &secret)
		switch {
		case err == nil:
			secrets = append(secrets, secret)
		case !apierrors.IsNotFound(err):
			return registry.Image{}, fmt.Errorf("get Secret %s: %w", key, err)
		}
	}
	return s.Resolver.Resolve(ctx, request.Image, secrets)
}

// pullSecrets names the Secrets that a pod would have: those of the server, or, when it
// names none, those of the ServiceAccount that it names.
func (s *ImageSource) pullSecrets(ctx context.Context, request ImageRequest) ([]string, error) {
	if len(request.PullSecrets) > 0 || request.ServiceAccount == "" {
		return request.PullSecrets, nil
	}
	key := types.NamespacedName{Namespace: request.Namespace, Name: request.ServiceAccount}
	account := corev1.ServiceAccount{}
	if err := s.Reader.Get(ctx, key, &account); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get ServiceAccount %s: %w", key, err)
	}
	names := make([]string, 0, len(account.ImagePullSecrets))
	for _, ref := range account.ImagePullSecrets {
		names = append(names, ref.Name)
	}
	return names, nil
}
