package controller

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/controller/rotation"
	"github.com/slipway-mcp/slipway/internal/reason"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// serverKeys are the keys of one server.
type serverKeys struct {
	ring       adapterapi.Keyring // shared with the adapters
	references adapterapi.Key     // for digests of what the spec refers to

	// What the Secret says of their rotation.
	next    adapterapi.Key // accepted, and the next to be current; zero if there is none
	honored string         // the request that the last rotation was begun for
	changed time.Time

	uid     types.UID // of the Secret
	version string
}

// held are the keys by their ids.
func (k *serverKeys) held() rotation.Keys {
	held := rotation.Keys{Current: k.ring.Current.ID(), Honored: k.honored, Changed: k.changed}
	for _, key := range k.ring.Accepted {
		if key == k.next {
			held.Next = key.ID()
		} else {
			held.Older = append(held.Older, key.ID())
		}
	}
	return held
}

// ensureKeys makes the server's keys if it has none, and reads them.
func (r *Reconciler) ensureKeys(ctx context.Context, s *state) error {
	if live := s.live[workload.ObjectKeys]; live != nil {
		if !ownedBy(live, s.server) {
			s.refuseForeign("Secret", live)
			return nil
		}
		if keys, ok := s.memory.keys.of(live); ok {
			s.keys = keys
			return nil
		}
	}
	secret, err := r.keysOf(ctx, s)
	if err != nil {
		return err
	}
	if !ownedBy(secret, s.server) {
		s.refuseForeign("Secret", secret)
		return nil
	}
	keys, err := readKeys(secret)
	if err != nil {
		s.refuse(mcpv1alpha1.ReasonNameConflict,
			fmt.Sprintf("Secret %s does not hold the keys of this server (%s): %s", secret.Name, err, reason.DeleteKeys))
		return nil
	}
	s.memory.keys = knownKeys{keys}
	s.keys = keys
	return nil
}

// keysOf gets the Secret with the keys, or creates it. For a new server, one request is enough.
func (r *Reconciler) keysOf(ctx context.Context, s *state) (*corev1.Secret, error) {
	name := s.in(workload.KeysSecretName(s.server))
	if s.live[workload.ObjectKeys] != nil {
		if secret, err := find(ctx, r.Live, name, &corev1.Secret{}); secret != nil || err != nil {
			return secret, err
		}
	}
	secret := workload.KeysSecret(s.server, adapterapi.NewKey(), adapterapi.NewKey())
	err := r.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) { // the cache is behind, or another owner has that name
		secret = &corev1.Secret{}
		err = r.Live.Get(ctx, name, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("create Secret %s: %w", name, err)
	}
	return secret, nil
}

// createSessionsSecret creates the Secret with the key for sessions, after everything that pods need. The
// server works without it, so a Secret of another owner is not in its way.
func (r *Reconciler) createSessionsSecret(ctx context.Context, s *state) error {
	if s.keys == nil || s.refusal != nil || s.has(workload.ObjectSessions) {
		return nil
	}
	secret := workload.SessionsSecret(s.server, s.keys.ring.Current)
	err := r.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) { // the cache is behind, or another owner has that name
		secret = &corev1.Secret{}
		err = r.Live.Get(ctx, s.in(workload.SessionsSecretName(s.server)), secret)
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) { // a quota, or a policy
		r.warnOnce(s, reasonSessionsConflict, actionReconcile, fmt.Sprintf("the API server refuses Secret %s, so kubectl mcp sessions does not work: %s",
			workload.SessionsSecretName(s.server), err))
		s.again(invalidRecheck)
		return nil
	}
	if err != nil {
		return fmt.Errorf("create Secret %s: %w", s.in(workload.SessionsSecretName(s.server)), err)
	}
	switch {
	case ownedBy(secret, s.server):
		s.unwarn(reasonSessionsConflict)
	case s.isLeftover(secret):
		s.again(leftoverRecheck)
	default:
		r.warnOnce(s, reasonSessionsConflict, actionReconcile, fmt.Sprintf("Secret %s exists and does not belong to this MCPServer, so kubectl mcp sessions does not work: %s", secret.Name, reason.DeleteOther))
		s.again(foreignRecheck)
	}
	return nil
}

// readKeys reads the Secret. Its errors do not tell what is in it.
func readKeys(secret *corev1.Secret) (*serverKeys, error) {
	ring, ringErr := adapterapi.ParseKeyring(string(secret.Data[adapterapi.KeysCurrent]), string(secret.Data[adapterapi.KeysAccepted]))
	references, err := adapterapi.ParseKey(string(secret.Data[workload.KeysReferences]))
	if err != nil {
		err = fmt.Errorf("read %s: %w", workload.KeysReferences, err)
	}
	if err := errors.Join(ringErr, err); err != nil {
		return nil, err
	}
	keys := &serverKeys{
		ring: ring, references: references, honored: secret.Annotations[mcpv1alpha1.AnnotationRotateKey],
		changed: secret.CreationTimestamp.Time, uid: secret.UID, version: secret.ResourceVersion,
	}
	for _, key := range ring.Accepted {
		if key.ID() == secret.Annotations[mcpv1alpha1.AnnotationNextKey] {
			keys.next = key
		}
	}
	if changed, err := time.Parse(time.RFC3339, secret.Annotations[mcpv1alpha1.AnnotationKeysChanged]); err == nil {
		keys.changed = changed
	}
	return keys, nil
}

// keyedDigest is a digest that says nothing to those who do not have the key, however
// easy to guess the content is.
func keyedDigest(key adapterapi.Key, content []byte) string {
	mac := hmac.New(sha256.New, key.Derive(adapterapi.UseReferences))
	mac.Write(content)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// knownKeys are the keys of a server as they were read from one version of its Secret, so that they
// are read once.
type knownKeys struct{ *serverKeys }

// of returns the keys if they are those of the Secret.
func (k knownKeys) of(secret metav1.Object) (*serverKeys, bool) {
	return k.serverKeys, k.serverKeys != nil && k.uid == secret.GetUID() && k.version == secret.GetResourceVersion()
}
