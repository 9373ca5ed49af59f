package controller

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/internal/registry"
)

// secretReader holds Secrets and ServiceAccounts by namespace and name.
type secretReader struct {
	client.Reader

	secrets  map[string]corev1.Secret
	accounts map[string]corev1.ServiceAccount
	err      error
}

func (r *secretReader) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if r.err != nil {
		return r.err
	}
	found := false
	switch into := object.(type) {
	case *corev1.Secret:
		*into, found = r.secrets[key.String()], r.secrets[key.String()].Type != ""
	case *corev1.ServiceAccount:
		*into, found = r.accounts[key.String()], r.accounts[key.String()].ImagePullSecrets != nil
	}
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return nil
}

func TestImageSource(t *testing.T) {
	// It lets in who has a password, and has no images.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "canary" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	pullSecret := func(password string) corev1.Secret {
		return corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{
			corev1.DockerConfigJsonKey: []byte(`{"auths":{"` + host + `":{"username":"u","password":"` + password + `"}}}`),
		}}
	}
	account := func(secret string) corev1.ServiceAccount {
		return corev1.ServiceAccount{ImagePullSecrets: []corev1.LocalObjectReference{{Name: secret}}}
	}
	const letIn, shutOut = registry.NotFound, registry.Unauthorized
	for name, test := range map[string]struct {
		secrets []string
		account string
		err     error
		want    registry.Kind
	}{
		"nothing":                          {want: shutOut},
		"secret of the server":             {secrets: []string{"right"}, want: letIn},
		"missing secret":                   {secrets: []string{"gone"}, want: shutOut},
		"missing secret and another":       {secrets: []string{"gone", "right"}, want: letIn},
		"secret of another namespace":      {secrets: []string{"elsewhere"}, want: shutOut},
		"account":                          {account: "right", want: letIn},
		"missing account":                  {account: "gone", want: shutOut},
		"account with a missing secret":    {account: "empty", want: shutOut},
		"secrets of the server come alone": {secrets: []string{"wrong"}, account: "right", want: shutOut},
		"API server is down, secret":       {secrets: []string{"right"}, err: errors.New("down"), want: ""},
		"API server is down, account":      {account: "right", err: errors.New("down"), want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			source := &ImageSource{Resolver: registry.New(registry.Options{}), Reader: &secretReader{
				secrets: map[string]corev1.Secret{
					"here/right": pullSecret("canary"), "here/wrong": pullSecret("canary-wrong"), "there/elsewhere": pullSecret("canary"),
				},
				accounts: map[string]corev1.ServiceAccount{"here/right": account("right"), "here/empty": account("gone")},
				err:      test.err,
			}}
			_, err := source.Resolve(t.Context(), ImageRequest{
				Namespace: "here", Image: host + "/tool:1", PullSecrets: test.secrets, ServiceAccount: test.account,
			})
			problem, _ := errors.AsType[*registry.Error](err)
			if err == nil || problem == nil != (test.want == "") || problem != nil && problem.Kind != test.want {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("%v holds a secret", err)
			}
		})
	}
}
