package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestArchives(t *testing.T) {
	modified := time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	program := file{"kubectl-mcp.exe", 0o755, []byte("program")}
	license := file{"LICENSE", 0o644, bytes.Repeat([]byte("license "), 1000)}
	want := map[string]unpacked{
		"kubectl-mcp.exe": {0o755, program.content},
		"LICENSE":         {0o644, license.content},
	}
	for name, test := range map[string]struct {
		pack   func([]file, time.Time) ([]byte, error)
		unpack func(*testing.T, []byte) map[string]unpacked
	}{
		"tar.gz": {tarGz, unpackTarGz},
		"zip":    {zipped, unpackZip},
	} {
		t.Run(name, func(t *testing.T) {
			packed := func(modified time.Time, files ...file) []byte {
				t.Helper()
				archive, err := test.pack(files, modified)
				if err != nil {
					t.Fatal(err)
				}
				return archive
			}
			first := packed(modified, program, license)
			if diff := cmp.Diff(want, test.unpack(t, first), cmp.AllowUnexported(unpacked{})); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			elsewhere := modified.In(time.FixedZone("", 7200))
			if !bytes.Equal(first, packed(elsewhere, license, program)) {
				t.Error("the order of files or the time zone shows in the bytes")
			}
			if bytes.Equal(first, packed(modified.Add(time.Hour), program, license)) {
				t.Error("the time of files does not show")
			}
		})
	}
}
