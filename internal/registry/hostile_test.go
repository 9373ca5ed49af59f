package registry

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const manifestHead = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",`

func sum(content string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content))) }

// pages are what a registry answers, by what comes after the repository's name.
type pages map[string]http.HandlerFunc

func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, ok := p[strings.TrimPrefix(r.URL.Path, "/v2/tool")]
	if !ok && r.URL.Path == "/v2/" {
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	page(w, r)
}

func text(content string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(content)) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte("canary: something that the registry says"))
	}
}

// endless writes until the client stops reading, and counts the bytes.
func endless(written *atomic.Int64) http.HandlerFunc {
	chunk := []byte(strings.Repeat(" ", 64<<10))
	return func(w http.ResponseWriter, _ *http.Request) {
		for {
			n, err := w.Write(chunk)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
}

func withConfig(config string) pages {
	return pages{
		"/manifests/1":          text(fmt.Sprintf(manifestHead+`"config":{"digest":%q,"size":%d}}`, sum(config), len(config))),
		"/blobs/" + sum(config): text(config),
	}
}

func TestAnswers(t *testing.T) {
	var written atomic.Int64
	good := `{"config":{"Cmd":["x"]}}`
	chain := indexes(`{"manifests":[]}`, 20)
	detours := indexes(fmt.Sprintf(manifestHead+`"config":{"digest":%q,"size":%d}}`, sum(good), len(good)), maxIndexes)
	detours["/blobs/"+sum(good)] = text(good)
	for path, page := range detours {
		detours[path] = detour(page)
	}
	wrongBlob := withConfig(good)
	wrongBlob["/blobs/"+sum(good)] = text(`{"config":{"Cmd":["y"]}}`)
	endlessBlob := withConfig(good)
	endlessBlob["/blobs/"+sum(good)] = endless(&written)
	for name, test := range map[string]struct {
		pages pages
		tag   string
		kind  Kind
		want  string
	}{
		"no such image":        {pages{}, "", NotFound, "has no such image"},
		"asked too often":      {pages{"/manifests/1": status(429)}, "", Unavailable, "wants a pause"},
		"ping asked too often": {pages{"/": status(429)}, "", Unavailable, "wants a pause"},
		"broken":               {pages{"/manifests/1": status(500)}, "", Unavailable, "status 500"},
		"forbidden":            {pages{"/manifests/1": status(403)}, "", Unauthorized, "gives no access"},
		"config is gone":       {pages{"/manifests/1": withConfig(good)["/manifests/1"]}, "", NotFound, "has no such image"},
		"not JSON":             {pages{"/manifests/1": text("<html>canary")}, "", Unavailable, "no image that can be read"},
		"nothing":              {pages{"/manifests/1": text("")}, "", Unavailable, "no image that can be read"},
		"null":                 {pages{"/manifests/1": text("null")}, "", Unavailable, "no image that can be read"},
		"other types":          {pages{"/manifests/1": text(`{"config":{"digest":["canary"]}}`)}, "", Unavailable, "no image that can be read"},
		"old format":           {pages{"/manifests/1": text(`{"schemaVersion":1,"fsLayers":[]}`)}, "", Unavailable, "no image that can be read"},
		"manifest and index":   {pages{"/manifests/1": text(`{"config":{},"manifests":[]}`)}, "", Unavailable, "no image that can be read"},
		"endless manifest":     {pages{"/manifests/1": endless(&written)}, "", Unavailable, "too large"},
		"endless config":       {endlessBlob, "", Unavailable, "too large"},
		"endless error":        {pages{"/manifests/1": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); endless(&written)(w, r) }}, "", Unavailable, "status 500"},
		"claims to be large":   {pages{"/manifests/1": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "9000000000000") }}, "", Unavailable, "too large"},
		"config is larger":     {pages{"/manifests/1": text(fmt.Sprintf(manifestHead+`"config":{"digest":%q,"size":10}}`, sum(good))), "/blobs/" + sum(good): text(good)}, "", Unavailable, "too large"},
		"config claims it":     {pages{"/manifests/1": text(fmt.Sprintf(manifestHead+`"config":{"digest":%q,"size":9000000000000}}`, sum(good)))}, "", Unavailable, "too large"},
		"large header":         {pages{"/manifests/1": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }}, "", Unavailable, "cannot be understood"},
		"wrong manifest":       {pages{"/manifests/" + sum("a"): text("b")}, "@" + sum("a"), Unavailable, "does not have the digest"},
		"wrong config":         {wrongBlob, "", Unavailable, "does not have the digest"},
		"wrong part of index":  {pages{"/manifests/1": text(fmt.Sprintf(`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q}]}`, sum("a"))), "/manifests/" + sum("a"): text("b")}, "", Unavailable, "does not have the digest"},
		"digest is a path":     {pages{"/manifests/1": text(manifestHead + `"config":{"digest":"../../../secret"}}`)}, "", Unavailable, "does not have the digest"},
		"digest in index":      {pages{"/manifests/1": text(`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"../x"}]}`)}, "", Unavailable, "does not have the digest"},
		"index of indexes":     {chain, "", Unavailable, "other indexes again and again"},
		"many parts":           {pages{"/manifests/1": text(`{"manifests":[{}` + strings.Repeat(",{}", 1<<20) + `]}`)}, "", Unavailable, "too large"},
		"many variables":       {withConfig(`{"config":{"Env":[""` + strings.Repeat(`,""`, 1<<20) + `]}}`), "", Unavailable, "too large"},
		"long command":         {withConfig(`{"config":{"Cmd":["` + strings.Repeat("x", 1<<20) + `"]}}`), "", Unavailable, "too large"},
		"command is no list":   {withConfig(`{"config":{"Cmd":{"canary":1}}}`), "", Unavailable, "no image that can be read"},
		"compressed":           {pages{"/manifests/1": zipped(t, 16<<20)}, "", Unavailable, "compressed"},
		"redirect loop":        {pages{"/manifests/1": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }}, "", Unavailable, "redirects again and again"},
		"endless ping":         {pages{"/": endless(&written)}, "", Unavailable, "too large"},
		"many redirects":       {detours, "", Unavailable, "too many requests"},
		"ping redirect loop":   {pages{"/": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/v2/tool/", http.StatusFound) }}, "", Unavailable, "redirects again and again"},
		"redirect to a file": {pages{"/manifests/1": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(302)
		}}, "", Unavailable, "cannot be understood"},
		"closes the connection": {pages{"/manifests/1": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }}, "", Unavailable, "cannot be understood"},
	} {
		t.Run(name, func(t *testing.T) {
			handler := http.Handler(test.pages)
			if ping, ok := test.pages["/"]; ok {
				mux := http.NewServeMux()
				mux.Handle("/v2/", ping)
				handler = mux
			}
			host := serve(t, handler)
			tag := test.tag
			if tag == "" {
				tag = ":1"
			}
			var before, after runtime.MemStats
			written.Store(0)
			runtime.ReadMemStats(&before)
			problem := problemOf(t, patient(Options{}), host+"/tool"+tag)
			runtime.ReadMemStats(&after)
			if problem.Kind != test.kind || !strings.Contains(problem.Detail, test.want) {
				t.Errorf("got %s %v, want %s %s", problem.Kind, problem, test.kind, test.want)
			}
			checkSecrecy(t, problem)
			if got := after.TotalAlloc - before.TotalAlloc; got > 48<<20 {
				t.Errorf("%d MiB allocated", got>>20)
			}
			if got := written.Load(); got > 64<<20 {
				t.Errorf("%d MiB read", got>>20)
			}
		})
	}
}

// indexes are so many indexes, of which each leads to the next and the last to the content.
func indexes(content string, number int) pages {
	answers := pages{}
	for range number {
		answers["/manifests/"+sum(content)] = text(content)
		content = fmt.Sprintf(`{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":%q}]}`, sum(content))
	}
	answers["/manifests/1"] = text(content)
	return answers
}

// detour redirects as often as one request may be, and then answers.
func detour(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if hops := r.URL.RawQuery; len(hops) < maxRedirects {
			http.Redirect(w, r, r.URL.Path+"?"+hops+"x", http.StatusFound)
			return
		}
		next(w, r)
	}
}

// zipped sends compressed nothing, although it was not asked for.
func zipped(t *testing.T, size int) http.HandlerFunc {
	t.Helper()
	var content bytes.Buffer
	writer := gzip.NewWriter(&content)
	if _, err := writer.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(content.Bytes())
	}
}

// The end of the context or of the timeout ends everything, wherever a registry hangs.
func TestSlow(t *testing.T) {
	stop := func(started chan<- struct{}) http.HandlerFunc {
		once := sync.OnceFunc(func() { close(started) })
		return func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			once()
			<-r.Context().Done()
		}
	}
	good := `{"config":{"Cmd":["x"]}}`
	for name, build := range map[string]func(chan<- struct{}) pages{
		"manifest": func(started chan<- struct{}) pages { return pages{"/manifests/1": stop(started)} },
		"config": func(started chan<- struct{}) pages {
			p := withConfig(good)
			p["/blobs/"+sum(good)] = stop(started)
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := make(chan struct{})
			host := serve(t, build(started))
			// A machine that is busy may take longer to get to where the registry hangs.
			for timeout := 100 * time.Millisecond; ; timeout *= 2 {
				problem := problemOf(t, New(Options{Timeout: timeout}), host+"/tool:1")
				if problem.Kind != Unavailable || !strings.Contains(problem.Detail, "does not answer in time") {
					t.Fatalf("got %v", problem)
				}
				select {
				case <-started:
					return
				default:
				}
			}
		})
		t.Run(name+" cancelled", func(t *testing.T) {
			t.Parallel()
			started := make(chan struct{})
			host := serve(t, build(started))
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-started; cancel() }()
			_, err := patient(Options{}).Resolve(ctx, host+"/tool:1", nil)
			if err == nil || !strings.Contains(err.Error(), "interrupted") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	host := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	first := problemOf(t, patient(Options{}), host+"/tool:1")
	if first.Kind != Unavailable || !strings.Contains(first.Detail, "connection refused") {
		t.Errorf("got %v", first)
	}
	if again := problemOf(t, patient(Options{}), host+"/tool:1"); *again != *first {
		t.Errorf("got %v and then %v: a status would never come to rest", first, again)
	}
	other := serve(t, status(404))
	if problem := problemOf(t, patient(Options{}), localhost(other)+"/tool:1"); problem.Kind != Unavailable || !strings.Contains(problem.Detail, "like a registry") {
		t.Errorf("got %v", problem)
	}
	if problem := problemOf(t, patient(Options{DNS: fakeDNS("127.0.0.1")}), "registry.example:"+port(other)+"/tool:1"); problem.Kind != Unavailable || !strings.Contains(problem.Detail, "plain HTTP") {
		t.Errorf("got %v", problem)
	}
	secure := serveTLS(t, storage())
	if problem := problemOf(t, patient(Options{DNS: fakeDNS("127.0.0.1")}), "www.example.com:"+port(secure.URL)+"/tool:1"); !strings.Contains(problem.Detail, "unknown authority") {
		t.Errorf("got %v", problem)
	}
	if problem := problemOf(t, patient(Options{DNS: fakeDNS("127.0.0.1"), TLS: trusting(secure)}), "registry.test:"+port(secure.URL)+"/tool:1"); !strings.Contains(problem.Detail, "another name") {
		t.Errorf("got %v", problem)
	}
}

func port(host string) string { return host[strings.LastIndex(host, ":")+1:] }

func trusting(server *httptest.Server) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}
