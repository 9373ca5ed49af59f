package adapterapi

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"go/build"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	hexKey   = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	otherKey = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
)

func key(t *testing.T, text string) Key {
	t.Helper()
	k, err := ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// What manager and adapter derive must be the same in every version: these values never
// change. A label whose value is to change gets a new version.
func TestDerivedKeysAreStable(t *testing.T) {
	k := key(t, hexKey)
	got := map[string]string{"id": k.ID()}
	for _, use := range []Use{UseSessionIDs, UseReferences, UseCatalog, UseProbe, UseSettings, UseSessions, UseStates, UseEventIDs, UsePeers} {
		got[string(use)] = hex.EncodeToString(k.Derive(use)[:8])
	}
	text, err := os.ReadFile("testdata/derived-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("derived keys (-want +got):\n%s", diff)
	}
	seen := map[string]bool{}
	for _, value := range got {
		if seen[value] {
			t.Errorf("two uses have the same key")
		}
		seen[value] = true
	}
}

func TestKeyIsNotTold(t *testing.T) {
	k := key(t, hexKey)
	_, header := NewProof(k, Subject{Use: UseCatalog}, time.Unix(1700000000, 0))
	text := fmt.Sprintf("%v %+v %#v %s %q %s", k, k, k, k, k, header)
	derived := k.Sessions()
	text += fmt.Sprintf("%v %+v %#v %s %q", derived, derived, &derived, derived, derived)
	if derived.Encode() == k.Encode() || strings.Contains(text, derived.Encode()[:16]) {
		t.Errorf("the key for sessions is told: %s", text)
	}
	text += fmt.Sprintf("%v %+v %#v", Keyring{Current: k}, &Keyring{Accepted: []Key{k}}, []Key{k})
	if encoded, err := json.Marshal(Keyring{Current: k}); err != nil || strings.Contains(string(encoded), "0001020304") {
		t.Errorf("JSON tells the key: %s, %v", encoded, err)
	}
	for _, secret := range []string{hexKey[:16], "[0 1 2 3", "0x0, 0x1", `\x00\x01\x02`} {
		if strings.Contains(text, secret) {
			t.Errorf("the key is told: %s", text)
		}
	}
}

func TestParseKeyring(t *testing.T) {
	for name, test := range map[string]struct {
		current, accepted string
		want              int // keys, or 0 for an error
	}{
		"one":                {hexKey, "", 1},
		"a line break":       {hexKey + "\n", "\n", 1},
		"two":                {hexKey, otherKey, 2},
		"current once more":  {hexKey, otherKey + "\n" + hexKey + "\n", 2},
		"none":               {"", "", 0},
		"too short":          {hexKey[2:], "", 0},
		"not hexadecimal":    {"zz" + hexKey[2:], "", 0},
		"accepted is broken": {hexKey, otherKey[2:], 0},
	} {
		ring, err := ParseKeyring(test.current, test.accepted)
		switch {
		case test.want == 0 && (err == nil || strings.Contains(err.Error(), hexKey[4:20])):
			t.Errorf("%s: got %v, want an error that does not tell the key", name, err)
		case test.want > 0 && (err != nil || len(ring.All()) != test.want || ring.All()[0] != key(t, hexKey)):
			t.Errorf("%s: got %d keys, %v, want %d", name, len(ring.All()), err, test.want)
		}
	}
	if k := NewKey(); k == NewKey() || key(t, k.Encode()) != k {
		t.Error("keys that are made are equal, or cannot be read")
	}
}

func TestProof(t *testing.T) {
	now := time.Unix(1700000000, 0)
	subject := Subject{Use: UseCatalog, PodUID: "uid-1", Method: "GET", Path: PathCatalog}
	other := func(change func(*Subject)) Subject {
		changed := subject
		change(&changed)
		return changed
	}
	_, header := NewProof(key(t, hexKey), subject, now)
	if _, again := NewProof(key(t, hexKey), subject, now); again == header {
		t.Error("two proofs are equal")
	}
	good := Keyring{Current: key(t, hexKey)}
	for name, test := range map[string]struct {
		ring    Keyring
		header  string
		subject Subject
		at      time.Time
		want    bool
	}{
		"good":                 {good, header, subject, now, true},
		"accepted":             {Keyring{Current: key(t, otherKey), Accepted: []Key{key(t, hexKey)}}, header, subject, now, true},
		"clock ahead":          {good, header, subject, now.Add(Window), true},
		"clock behind":         {good, header, subject, now.Add(-Window), true},
		"too old":              {good, header, subject, now.Add(Window + time.Second), false},
		"from the future":      {good, header, subject, now.Add(-Window - time.Second), false},
		"other key":            {Keyring{Current: key(t, otherKey)}, header, subject, now, false},
		"other pod":            {good, header, other(func(s *Subject) { s.PodUID = "uid-2" }), now, false},
		"other use":            {good, header, other(func(s *Subject) { s.Use = UseProbe }), now, false},
		"other method":         {good, header, other(func(s *Subject) { s.Method = "PUT" }), now, false},
		"other path":           {good, header, other(func(s *Subject) { s.Path = "/config" }), now, false},
		"time changed":         {good, strings.Replace(header, "1700000000", "1700000001", 1), subject, now, false},
		"nothing":              {good, "", subject, now, false},
		"no MAC":               {good, header[:strings.LastIndex(header, ".")+1], subject, now, false},
		"MAC of another":       {good, header[:len(header)-3] + "AAA", subject, now, false},
		"the key itself":       {good, hexKey, subject, now, false},
		"parts moved, no dots": {good, strings.ReplaceAll(header, ".", ""), subject, now, false},
	} {
		if _, got := test.ring.Verify(test.header, test.subject, test.at); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestAnswerIsBoundToItsRequest(t *testing.T) {
	now := time.Unix(1700000000, 0)
	subject := Subject{Use: UseCatalog, PodUID: "uid-1", Method: "GET", Path: PathCatalog}
	asked, header := NewProof(key(t, hexKey), subject, now)
	heard, ok := Keyring{Current: key(t, hexKey)}.Verify(header, subject, now)
	if !ok {
		t.Fatal("the proof is not taken")
	}
	answer := Answer{Status: 200, ETag: `"1"`, Sessions: "3", Body: []byte(`{"ready":true}`), Processes: "0/0/0/0/"}
	changed := func(change func(*Answer)) Answer {
		other := answer
		change(&other)
		return other
	}
	sealed := heard.Seal(answer)
	if !asked.Opens(sealed, answer) {
		t.Error("the answer is not taken")
	}
	second, _ := NewProof(key(t, hexKey), subject, now)
	stranger, _ := NewProof(key(t, otherKey), subject, now)
	for name, got := range map[string]bool{
		"to another request":  second.Opens(sealed, answer),
		"of another key":      asked.Opens(stranger.Seal(answer), answer),
		"other status":        asked.Opens(sealed, changed(func(a *Answer) { a.Status = 304 })),
		"other tag":           asked.Opens(sealed, changed(func(a *Answer) { a.ETag = `"2"` })),
		"other sessions":      asked.Opens(sealed, changed(func(a *Answer) { a.Sessions = "4" })),
		"other body":          asked.Opens(sealed, changed(func(a *Answer) { a.Body = []byte(`{"ready":false}`) })),
		"text moved":          asked.Opens(sealed, changed(func(a *Answer) { a.ETag, a.Sessions = `"1"3`, "" })),
		"other processes":     asked.Opens(sealed, changed(func(a *Answer) { a.Processes = "1/1/0/0/signal 11" })),
		"no processes":        asked.Opens(sealed, changed(func(a *Answer) { a.Processes = "" })),
		"the request's proof": asked.Opens(header[strings.LastIndex(header, ".")+1:], answer),
		"none":                asked.Opens("", answer),
	} {
		if got {
			t.Errorf("%s: it is taken", name)
		}
	}
}

// An adapter or a manager that does not know Processes makes and checks this MAC. It is stable.
func TestAnswerWithoutProcesses(t *testing.T) {
	proof := Proof{key: key(t, hexKey).Derive(UseCatalog), nonce: "AAAAAAAAAAAAAAAAAAAAAA"}
	got := proof.Seal(Answer{Status: 200, ETag: `"1"`, Sessions: "3/20/0", Body: []byte(`{"ready":true}`)})
	if want := "BbO2whzmoJCQJubA7nAuW4mUVJwmw2eJZaLNSMoADa8"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Both sides may be two minor versions apart: a change of this file is a change of the
// contract.
func TestReportIsStable(t *testing.T) {
	text, err := os.ReadFile("testdata/report-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	want := []Report{
		{Ready: true, Catalog: json.RawMessage(`{"digest":"sha256:00"}`)},
		{Ready: true, Reason: TooLarge, Error: "more than 10000 items of a list"},
		{Ready: true, Settings: &SettingsState{Version: 1, Generation: 7, Digest: "00"}},
		{Ready: true, Settings: &SettingsState{Version: 1}},
	}
	want = append(want, Report{Reason: Exited, Error: "why", Failures: 2})
	for _, reason := range []Reason{Starting, Unstartable, Exited, Silent, Unauthorized, Busy, NoRoom, Broken} {
		want = append(want, Report{Reason: reason, Error: "why"})
	}
	encoded, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(text)), string(encoded)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// Everything else may import this package, so it imports nothing.
func TestStandardLibraryOnly(t *testing.T) {
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pkg.Imports {
		if strings.Contains(path, ".") {
			t.Errorf("it imports %s", path)
		}
	}
}
