package adapterapi

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Pods may be two minor versions older than the manager. Adapters of a version must always
// be able to read the file of that version.
func TestSettingsAreStable(t *testing.T) {
	text, err := os.ReadFile("testdata/settings-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Version: SettingsVersion, Generation: 7, Verbosity: 1,
		AllowedHosts: []string{"echo", "echo.team.svc", "mcp.example.com:8443"}, AllowedOrigins: []string{"https://chat.example.com"},
	}
	got, err := DecodeSettings(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	document, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Document{7, SettingsDigest(text), string(text)}, document); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

func TestSettingsThatAreNone(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"nothing":             {``, "JSON"},
		"cut":                 {`{"version":1,"generation":7,"allowedHo`, "JSON"},
		"more behind it":      {`{"version":1,"generation":7,"allowedHosts":["a"]} {}`, "after top-level value"},
		"another version":     {`{"version":2,"generation":7,"unheardOf":1}`, "version is 2, and this adapter reads 1"},
		"no version":          {`{"generation":7,"allowedHosts":["a"]}`, "version is missing"},
		"unknown member":      {`{"version":1,"generation":7,"allowedHosts":["a"],"deniedHosts":["b"]}`, "deniedHosts is not known to this adapter"},
		"no generation":       {`{"version":1,"allowedHosts":["a"]}`, "generation is 0, want at least 1"},
		"no hosts":            {`{"version":1,"generation":7}`, "allowedHosts is empty: name a host, or * for all"},
		"hosts are no list":   {`{"version":1,"generation":7,"allowedHosts":"a"}`, "allowedHosts is a JSON string"},
		"a host is no text":   {`{"version":1,"generation":7,"allowedHosts":["a",1]}`, "allowedHosts is a JSON number"},
		"an empty host":       {`{"version":1,"generation":7,"allowedHosts":["a",""]}`, "allowedHosts[1] is empty"},
		"an empty origin":     {`{"version":1,"generation":7,"allowedHosts":["a"],"allowedOrigins":[""]}`, "allowedOrigins[0] is empty"},
		"too verbose":         {`{"version":1,"generation":7,"allowedHosts":["a"],"verbosity":6}`, "verbosity is 6, want 0 to 5"},
		"less than silent":    {`{"version":1,"generation":7,"allowedHosts":["a"],"verbosity":-1}`, "verbosity is -1, want 0 to 5"},
		"two mistakes":        {`{"version":1,"verbosity":9}`, "allowedHosts is empty"},
		"a list":              {`[]`, "array"},
		"larger than allowed": {`{"version":1,"generation":7,"allowedHosts":["` + strings.Repeat("a", MaxSettingsBytes) + `"]}`, "want at most 524288"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeSettings([]byte(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %+v, %v, want %q", got, err, test.want)
			}
			if diff := cmp.Diff(Settings{}, got); diff != "" {
				t.Errorf("part of it is taken (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLacks(t *testing.T) {
	document := Document{Generation: 7, Digest: "new"}
	for name, test := range map[string]struct {
		state    SettingsState
		document Document
		want     bool
	}{
		"goes by its flags":                {SettingsState{Version: 1}, document, true},
		"has an older one":                 {SettingsState{1, 6, "old"}, document, true},
		"has it":                           {SettingsState{1, 7, "new"}, document, false},
		"another of the same generation":   {SettingsState{1, 7, "old"}, document, true},
		"has a newer one":                  {SettingsState{1, 8, "newer"}, document, false},
		"there is none that it could have": {SettingsState{Version: 1}, Document{}, false},
	} {
		if got := test.state.Lacks(test.document); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestBodyIsBoundToItsRequest(t *testing.T) {
	now := time.Unix(1700000000, 0)
	subject := SettingsSubject("uid-1")
	sent, header := NewProof(key(t, hexKey), subject, now)
	heard, ok := Keyring{Current: key(t, hexKey)}.Verify(header, subject, now)
	if !ok {
		t.Fatal("the proof is not taken")
	}
	body := []byte(`{"version":1}`)
	sealed := sent.SealBody(body)
	if !heard.OpensBody(sealed, body) {
		t.Error("the body is not taken")
	}
	second, _ := NewProof(key(t, hexKey), subject, now)
	catalog, _ := NewProof(key(t, hexKey), CatalogSubject("uid-1"), now)
	for name, got := range map[string]bool{
		"another body":     heard.OpensBody(sealed, []byte(`{"version":2}`)),
		"another request":  heard.OpensBody(second.SealBody(body), body),
		"another use":      heard.OpensBody(catalog.SealBody(body), body),
		"an answer's seal": heard.OpensBody(sent.Seal(Answer{Body: body}), body),
		"none":             heard.OpensBody("", body),
	} {
		if got {
			t.Errorf("%s: it is taken", name)
		}
	}
	if _, ok := (Keyring{Current: key(t, hexKey)}).Verify(header, SettingsSubject("uid-2"), now); ok {
		t.Error("the proof is taken by another pod")
	}
}
