package controller

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// keyBytes is the size of a server's key.
const keyBytes = 32

// ensureKey makes the server's key if it has none, and reads it. The Secret is
// immutable: a key that changed under running pods would end every session.
func (r *Reconciler) ensureKey(ctx context.Context, s *state) error {
	if s.keySecret != nil {
		if !metav1.IsControlledBy(s.keySecret, s.server) {
			s.refuseForeign("Secret", s.keySecret)
			return nil
		}
		if key, ok := r.keys.get(s.name, s.keySecret); ok {
			s.key = key
			return nil
		}
	}
	name := types.NamespacedName{Namespace: s.name.Namespace, Name: workload.KeySecretName(s.server)}
	secret, err := find(ctx, r.Live, name, &corev1.Secret{})
	if err != nil {
		return err
	}
	if secret == nil {
		if secret, err = r.createKey(ctx, s, name); err != nil {
			return err
		}
	}
	if !metav1.IsControlledBy(secret, s.server) {
		s.refuseForeign("Secret", secret)
		return nil
	}
	key := string(secret.Data[workload.KeySecretKey])
	if decoded, _ := hex.DecodeString(key); len(decoded) != keyBytes {
		s.refuse(mcpv1alpha1.ReasonNameConflict,
			fmt.Sprintf("Secret %s does not hold a key of this server: delete it, and a new one is made", secret.Name))
		return nil
	}
	r.keys.put(s.name, secret, key)
	s.key = key
	return nil
}

func (r *Reconciler) createKey(ctx context.Context, s *state, name types.NamespacedName) (*corev1.Secret, error) {
	var random [keyBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	secret := workload.KeySecret(s.server, hex.EncodeToString(random[:]))
	err := r.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) { // since it was looked for
		secret = &corev1.Secret{}
		err = r.Live.Get(ctx, name, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("create Secret %s: %w", name, err)
	}
	return secret, nil
}

// keyID names a key without telling it.
func keyID(key string) string { return keyedDigest(key, []byte("key id")) }

// keyedDigest is a digest that says nothing to those who do not have the key, however
// easy to guess the content is.
func keyedDigest(key string, content []byte) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write(content)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// keyCache keeps the keys of servers, so that they are read once.
type keyCache struct {
	mu   sync.Mutex
	keys map[types.NamespacedName]knownKey
}

type knownKey struct {
	uid     types.UID
	version string
	key     string
}

func (c *keyCache) get(server types.NamespacedName, secret metav1.Object) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.keys[server]
	return known.key, ok && known.uid == secret.GetUID() && known.version == secret.GetResourceVersion()
}

func (c *keyCache) put(server types.NamespacedName, secret metav1.Object, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = map[types.NamespacedName]knownKey{}
	}
	c.keys[server] = knownKey{secret.GetUID(), secret.GetResourceVersion(), key}
}

func (c *keyCache) forget(server types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.keys, server)
}
