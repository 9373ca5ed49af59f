package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var certificates = []Certificate{
	{Name: "ca", CommonName: "slipway"},
	{Name: "server", CA: "ca", CommonName: "server", Addresses: []string{"localhost", "127.0.0.1"}},
	{Name: "client", CA: "ca", CommonName: "admin", Organization: "system:masters"},
}

func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	contents := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		contents[entry.Name()] = string(content)
	}
	return contents
}

func TestEnsureRenewsWhatIsNeeded(t *testing.T) {
	now := time.Now()
	changed := func(edit func([]Certificate)) []Certificate {
		edited := append([]Certificate(nil), certificates...)
		edit(edited)
		return edited
	}
	tests := map[string]struct {
		after  time.Duration
		want   []Certificate
		tamper func(t *testing.T, dir string)
		new    []string
	}{
		"nothing changed":  {},
		"eleven months on": {after: 340 * 24 * time.Hour, new: []string{"ca", "server", "client"}},
		"other address": {
			want: changed(func(c []Certificate) { c[1].Addresses = []string{"localhost", "10.0.0.1"} }),
			new:  []string{"server"},
		},
		"other subject": {
			want: changed(func(c []Certificate) { c[2].Organization = "others" }),
			new:  []string{"client"},
		},
		"authority lost": {
			tamper: func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
					t.Fatal(err)
				}
			},
			new: []string{"ca", "server", "client"},
		},
		"half written": {
			tamper: func(t *testing.T, dir string) {
				if err := os.Truncate(filepath.Join(dir, "client.crt"), 40); err != nil {
					t.Fatal(err)
				}
			},
			new: []string{"client"},
		},
		"another's key": {
			tamper: func(t *testing.T, dir string) {
				if err := os.Rename(filepath.Join(dir, "server.key"), filepath.Join(dir, "client.key")); err != nil {
					t.Fatal(err)
				}
			},
			new: []string{"server", "client"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := Ensure(dir, now, certificates...); err != nil {
				t.Fatal(err)
			}
			before := read(t, dir)
			if test.tamper != nil {
				test.tamper(t, dir)
			}
			want := test.want
			if want == nil {
				want = certificates
			}
			if err := Ensure(dir, now.Add(test.after), want...); err != nil {
				t.Fatal(err)
			}
			var renewed []string
			after := read(t, dir)
			for _, certificate := range certificates {
				if before[certificate.Name+".crt"] != after[certificate.Name+".crt"] {
					renewed = append(renewed, certificate.Name)
				}
			}
			if diff := cmp.Diff(test.new, renewed); diff != "" {
				t.Errorf("renewed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCertificatesVerify(t *testing.T) {
	dir := t.TempDir()
	if err := Ensure(dir, time.Now(), certificates...); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(read(t, dir)["ca.crt"]))
	for name, options := range map[string]x509.VerifyOptions{
		"server": {DNSName: "127.0.0.1", KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		"client": {KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		keyPair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		options.Roots = roots
		if _, err := keyPair.Leaf.Verify(options); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if left := time.Until(keyPair.Leaf.NotAfter); left < 364*24*time.Hour || left > 366*24*time.Hour {
			t.Errorf("%s is valid for %s, want a year", name, left)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v", info.Mode())
	}
}

func TestEnsureNeedsTheAuthorityFirst(t *testing.T) {
	err := Ensure(t.TempDir(), time.Now(), certificates[1], certificates[0])
	if err == nil || !strings.Contains(err.Error(), "authority ca") {
		t.Errorf("error %v", err)
	}
}

func TestEnsureKeyKeepsTheKey(t *testing.T) {
	dir := t.TempDir()
	if err := EnsureKey(dir, "sa"); err != nil {
		t.Fatal(err)
	}
	before := read(t, dir)
	if err := EnsureKey(dir, "sa"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, read(t, dir)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
