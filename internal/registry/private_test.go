package registry

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	canary = "canary-password"
	issued = "canary-issued-token"
)

// basic lets in who has the user and password, by the whole path of the request.
func basic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "tester" || password != canary {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, `{"errors":[{"code":"UNAUTHORIZED","message":"you sent %s"}]}`, r.Header.Get("Authorization"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearer lets in who has a token of a token server.
func bearer(realm string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+issued {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="registry",scope="repository:team/tool:pull"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// tokens issues tokens, to who has a user and password or a refresh token.
func tokens() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		refresh := r.Method == http.MethodPost && r.FormValue("refresh_token") == canary
		if !refresh && (user != "tester" || password != canary || r.FormValue("scope") != "repository:team/tool:pull") {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, "you sent "+r.Header.Get("Authorization")+r.FormValue("refresh_token"))
			return
		}
		_, _ = fmt.Fprintf(w, `{"token":%q}`, issued)
	})
}

// localhost is another name for the same server: credentials are not for it.
func localhost(host string) string { return strings.Replace(host, "127.0.0.1", "localhost", 1) }

func stored(t *testing.T) http.Handler {
	t.Helper()
	handler := storage()
	host := serve(t, handler)
	store(t, host+"/team/tool:1", picture(t, "amd64", v1.Config{Cmd: []string{"private"}}))
	return handler
}

func TestPrivate(t *testing.T) {
	handler := stored(t)
	token := serve(t, tokens())
	flows := map[string]string{
		"basic":                           serve(t, basic(handler)),
		"bearer from a server of its own": serve(t, bearer("http://"+localhost(token)+"/token?x=y", handler)),
	}
	shared := http.NewServeMux()
	same := serve(t, shared)
	shared.Handle("/token", tokens())
	shared.Handle("/", bearer("http://"+same+"/token", handler))
	flows["bearer from the registry"] = same

	for flow, host := range flows {
		broken := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths": canary-password`)}}
		right := dockerConfig(t, "right", map[string]any{host: login("tester", canary)})
		wrong := dockerConfig(t, "wrong", map[string]any{host: login("tester", "canary-wrong")})
		for name, test := range map[string]struct {
			secrets []corev1.Secret
			want    string // of the error; "" is success
		}{
			"right":            {secrets: []corev1.Secret{right}},
			"encoded":          {secrets: []corev1.Secret{dockerConfig(t, "encoded", map[string]any{"http://" + host + "/v2/": encodedLogin("tester", canary)})}},
			"old format":       {secrets: []corev1.Secret{{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"` + host + `":{"username":"tester","password":"` + canary + `"}}`)}}}},
			"the second":       {secrets: []corev1.Secret{broken, wrong, right}},
			"path":             {secrets: []corev1.Secret{dockerConfig(t, "path", map[string]any{host: login("tester", "canary-wrong"), host + "/team": login("tester", canary)})}},
			"none":             {want: "no pull secret has credentials for " + host},
			"wrong":            {secrets: []corev1.Secret{wrong}, want: "does not accept those that the pull secrets have for " + host},
			"broken":           {secrets: []corev1.Secret{broken}, want: "pull secrets that cannot be read: broken"},
			"of another":       {secrets: []corev1.Secret{dockerConfig(t, "other", map[string]any{"registry.example": login("tester", canary)})}, want: "no pull secret has credentials for " + host},
			"of another port":  {secrets: []corev1.Secret{dockerConfig(t, "other", map[string]any{"127.0.0.1:1": login("tester", canary)})}, want: "no pull secret"},
			"of another kind":  {secrets: []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "opaque"}, Type: corev1.SecretTypeOpaque, Data: right.Data}}, want: "cannot be read: opaque"},
			"undecodable auth": {secrets: []corev1.Secret{dockerConfig(t, "odd", map[string]any{host: map[string]any{"auth": "canary-wrong!"}})}, want: "cannot be read: odd"},
		} {
			t.Run(flow+"/"+name, func(t *testing.T) {
				t.Parallel()
				resolver := patient(Options{Architecture: "amd64"})
				if test.want == "" {
					image, err := resolver.Resolve(t.Context(), host+"/team/tool:1", test.secrets)
					if err != nil || len(image.Cmd) == 0 {
						t.Fatalf("got %+v, %v", image, err)
					}
					return
				}
				problem := problemOf(t, resolver, host+"/team/tool:1", test.secrets...)
				if problem.Kind != Unauthorized || !strings.Contains(problem.Detail, test.want) {
					t.Errorf("got %s, want %s", problem.Kind, test.want)
				}
				checkSecrecy(t, problem)
			})
		}
	}
}

// checkSecrecy looks for credentials in every form that they are sent in.
func checkSecrecy(t *testing.T, problem error) {
	t.Helper()
	for _, word := range []string{"canary", base64.StdEncoding.EncodeToString([]byte("tester:" + canary)), "dGVzdGVy", "scope="} {
		if strings.Contains(problem.Error(), word) {
			t.Errorf("%v has %s in it", problem, word)
		}
	}
}

func TestIdentityToken(t *testing.T) {
	handler, token := stored(t), serve(t, tokens())
	host := serve(t, bearer("http://"+localhost(token)+"/token", handler))
	identity := func(value string) corev1.Secret {
		return dockerConfig(t, "identity", map[string]any{host: map[string]any{"identitytoken": value}})
	}
	resolver := patient(Options{})
	if _, err := resolver.Resolve(t.Context(), host+"/team/tool:1", []corev1.Secret{identity(canary)}); err != nil {
		t.Error(err)
	}
	problem := problemOf(t, resolver, host+"/team/tool:1", identity("canary-wrong"))
	if problem.Kind != Unauthorized {
		t.Errorf("got %s", problem.Kind)
	}
	checkSecrecy(t, problem)
}

func TestCredentialsStayWithTheirHost(t *testing.T) {
	handler := stored(t)
	for name, other := range map[string]func(string) string{
		"another name": localhost, "another port": func(host string) string { return host },
	} {
		for flow, protect := range map[string]func(http.Handler) http.Handler{
			"basic":  basic,
			"bearer": func(next http.Handler) http.Handler { return bearer("http://"+localhost(serve(t, tokens()))+"/", next) },
		} {
			t.Run(name+"/"+flow, func(t *testing.T) {
				var seen requests
				blobs := other(serve(t, seen.record(handler)))
				host := serve(t, protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.Contains(r.URL.Path, "/blobs/") {
						http.Redirect(w, r, "http://"+blobs+r.URL.Path, http.StatusTemporaryRedirect)
						return
					}
					handler.ServeHTTP(w, r)
				})))
				secret := dockerConfig(t, "right", map[string]any{host: login("tester", canary)})
				if _, err := patient(Options{}).Resolve(t.Context(), host+"/team/tool:1", []corev1.Secret{secret}); err != nil {
					t.Fatal(err)
				}
				if len(seen.list()) != 1 {
					t.Fatalf("the other host was asked %d times", len(seen.list()))
				}
				for _, request := range seen.list() {
					if got := request.Header.Get("Authorization"); got != "" {
						t.Errorf("the other host got %s", got)
					}
				}
			})
		}
	}
}

func TestRefreshTokenIsNotSentOn(t *testing.T) {
	var seen requests
	thief := localhost(serve(t, seen.record(tokens())))
	token := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+thief+"/", http.StatusTemporaryRedirect)
	}))
	host := serve(t, bearer("http://"+localhost(token)+"/", stored(t)))
	secret := dockerConfig(t, "identity", map[string]any{host: map[string]any{"identitytoken": canary}})
	problem := problemOf(t, patient(Options{}), host+"/team/tool:1", secret)
	if problem.Kind != Unavailable || !strings.Contains(problem.Detail, "redirects a request that holds credentials") {
		t.Errorf("got %s", problem.Kind)
	}
	if n := len(seen.list()); n != 0 {
		t.Errorf("the other host was asked %d times", n)
	}
}

func TestPullSecretMatching(t *testing.T) {
	for _, test := range []struct {
		place, repository string
		want              bool
	}{
		{"registry.example", "registry.example/team/tool", true},
		{"https://registry.example", "registry.example/team/tool", true},
		{"https://registry.example/v2/", "registry.example/team/tool", true},
		{"registry.example/team", "registry.example/team/tool", true},
		{"registry.example/te", "registry.example/team/tool", true}, // as the kubelet has it
		{"registry.example/other", "registry.example/team/tool", false},
		{"registry.example:5000", "registry.example/team/tool", false},
		{"registry.example:5000", "registry.example:5000/team/tool", true},
		{"*.example", "registry.example/team/tool", true},
		{"*.example", "a.registry.example/team/tool", false},
		{"reg*.example", "registry.example/team/tool", true},
		{"*", "registry.example/team/tool", false},
		{"registry.example", "registry.example.evil.test/team/tool", false},
		{"https://index.docker.io/v1/", "docker.io/library/nginx", true},
		{"docker.io", "docker.io/library/nginx", true},
		{"index.docker.io", "registry.example/library/nginx", false},
		{"[", "registry.example/team/tool", false},
		{"%zz", "registry.example/team/tool", false},
		{"", "registry.example/team/tool", false},
	} {
		t.Run(url.PathEscape(test.place)+" "+url.PathEscape(test.repository), func(t *testing.T) {
			secret := dockerConfig(t, "one", map[string]any{test.place: login("a", "b")})
			if got := keysFor(test.repository, []corev1.Secret{secret}); len(got.fit) == 1 != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	many := map[string]any{}
	for i := range 100 {
		many["registry.example/"+strings.Repeat("a", i)] = login("user", strconv.Itoa(i))
	}
	got := keysFor("registry.example/"+strings.Repeat("a", 200), []corev1.Secret{dockerConfig(t, "many", many)})
	if len(got.fit) != maxCredentials || got.fit[0].Password != "99" {
		t.Errorf("got %v, want %d, the longest path first", got.fit, maxCredentials)
	}
}
