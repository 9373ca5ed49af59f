package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/hang"
)

const testUID = "11111111-2222-3333-4444-555555555555"

func settingsDocument(t *testing.T, generation int64, host string, verbosity int) string {
	t.Helper()
	document, err := adapterapi.Settings{
		Version: adapterapi.SettingsVersion, Generation: generation, AllowedHosts: []string{host}, Verbosity: verbosity,
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return document.Text
}

func writeFiles(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// openAs opens a session under a host name, ends it, and returns the status of the former.
func openAs(t *testing.T, url, host string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(initialize))
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if id := response.Header.Get("Mcp-Session-Id"); id != "" {
		end, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		end.Host = host
		end.Header.Set("Mcp-Session-Id", id)
		ended, err := http.DefaultClient.Do(end)
		if err != nil {
			t.Fatal(err)
		}
		_ = ended.Body.Close()
	}
	return response.StatusCode
}

// A program that runs takes other hosts and another verbosity.
func TestSettingsWhileItRuns(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	key := adapterapi.NewKey()
	p, admin := startSidecar(t,
		"--keys-dir", writeFiles(t, map[string]string{adapterapi.KeysCurrent: key.Encode(), adapterapi.KeysAccepted: ""}), "--pod-uid", testUID,
		"--settings-dir", writeFiles(t, map[string]string{adapterapi.SettingsFile: settingsDocument(t, 1, "one.example", 0), adapterapi.AccessFile: accessDocument(t, key, 1)}),
		"--allowed-host", "flag.example", "--verbosity", "1", "--", echoServer)
	url := clientURL.FindStringSubmatch(p.written())[1]
	g.Expect(openAs(t, url, "one.example")).To(gomega.Equal(http.StatusOK))
	g.Expect(openAs(t, url, "flag.example")).To(gomega.Equal(http.StatusForbidden), "the document is there instead of the flags")
	g.Expect(openAs(t, url, "two.example")).To(gomega.Equal(http.StatusForbidden))

	g.Expect(push(t, key, admin, adapterapi.SettingsSubject(testUID), settingsDocument(t, 2, "two.example", 1))).To(gomega.Equal(http.StatusOK))

	g.Expect(openAs(t, url, "one.example")).To(gomega.Equal(http.StatusForbidden))
	g.Expect(openAs(t, url, "two.example")).To(gomega.Equal(http.StatusOK))
	g.Eventually(p.written).WithTimeout(hang.Guard).Should(gomega.ContainSubstring("Session ended"))
	g.Expect(strings.Count(p.written(), "Session ended")).To(gomega.Equal(1), "the end of the first session was logged, too")
}

// push sends a document as the manager does.
func push(t *testing.T, key adapterapi.Key, admin string, subject adapterapi.Subject, document string) (status int) {
	t.Helper()
	proof, header := adapterapi.NewProof(key, subject, time.Now())
	request, err := http.NewRequestWithContext(t.Context(), subject.Method, admin+subject.Path, strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(adapterapi.HeaderProof, header)
	request.Header.Set(adapterapi.HeaderBody, proof.SealBody([]byte(document)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// accessDocument allows everything to everyone, and hides the tool pid.
func accessDocument(t *testing.T, key adapterapi.Key, generation int64) string {
	t.Helper()
	document, err := adapterapi.Access{
		Version: adapterapi.AccessVersion, Generation: generation, Mode: adapterapi.AccessNone, Hidden: []string{"pid"},
		Audit: adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop},
	}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return document.Text
}

// In a pod, an adapter serves no client before it has an access document that the manager has signed.
func TestAccessDocumentIsRequired(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	key, foreign := adapterapi.NewKey(), adapterapi.NewKey()
	p, admin := startSidecar(t,
		"--keys-dir", writeFiles(t, map[string]string{adapterapi.KeysCurrent: key.Encode(), adapterapi.KeysAccepted: ""}), "--pod-uid", testUID,
		"--settings-dir", writeFiles(t, map[string]string{adapterapi.SettingsFile: settingsDocument(t, 1, "one.example", 0), adapterapi.AccessFile: accessDocument(t, foreign, 1)}),
		"--", echoServer)
	url := clientURL.FindStringSubmatch(p.written())[1]
	refused := func(what string) {
		g.Expect(openAs(t, url, "one.example")).To(gomega.Equal(http.StatusServiceUnavailable), what)
		g.Expect(status(t, admin+"/readyz")).To(gomega.Equal(http.StatusServiceUnavailable), what)
	}
	refused("the mounted document has the signature of another server")
	subject := adapterapi.AccessPushSubject(testUID)
	g.Expect(push(t, key, admin, subject, accessDocument(t, foreign, 2))).To(gomega.Equal(http.StatusUnprocessableEntity))
	refused("the pushed document has it, too")
	g.Expect(push(t, key, admin, subject, accessDocument(t, key, 3))).To(gomega.Equal(http.StatusOK))
	g.Expect(openAs(t, url, "one.example")).To(gomega.Equal(http.StatusOK))
	g.Eventually(func() int { return status(t, admin+"/readyz") }).WithTimeout(hang.Guard).Should(gomega.Equal(http.StatusOK))
	g.Expect(push(t, key, admin, subject, accessDocument(t, key, 2))).To(gomega.Equal(http.StatusConflict))
}

// In a pod whose settings are missing or broken no name leads to the server, instead of
// every one.
func TestSettingsThatAreMissing(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"missing": {},
		"broken":  {adapterapi.SettingsFile: `{"version":1,"generation":1,"allowedHosts":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gomega.NewWithT(t)
			p, _ := startSidecar(t, "--listen", "0.0.0.0:0", "--settings-dir", writeFiles(t, files), "--", echoServer)
			url := clientURL.FindStringSubmatch(p.written())[1]
			g.Expect(openAs(t, url, "any.example")).To(gomega.Equal(http.StatusForbidden))
			g.Expect(openAs(t, url, "localhost")).To(gomega.Equal(http.StatusOK))
			g.Expect(strings.Contains(p.written(), "Keep the settings in effect")).To(gomega.Equal(name == "broken"))
		})
	}
}
