package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestClaimAndRemove(t *testing.T) {
	tests := map[string]struct {
		files   map[string]string
		wantErr bool
	}{
		"absent":         {},
		"locked only":    {files: map[string]string{"lock": ""}},
		"ours":           {files: map[string]string{"provider": "local\n", "etcd": "data"}},
		"half marked":    {files: map[string]string{"provider": ""}},
		"of another":     {files: map[string]string{"provider": "kind\n"}, wantErr: true},
		"a user's files": {files: map[string]string{"thesis.tex": "years of work"}, wantErr: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			for file, content := range test.files {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := Claim(dir, "local")
			if (err != nil) != test.wantErr {
				t.Fatalf("claim: %v", err)
			}
			if err != nil {
				return
			}
			if got := Provider(dir); got != "local" {
				t.Errorf("provider %q", got)
			}
			if err := Remove(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("still there: %v", err)
			}
		})
	}
}

func TestRemoveSparesWhatIsNotOurs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.tex")
	if err := os.WriteFile(file, []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
