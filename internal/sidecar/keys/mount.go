package keys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// dataLink is the link that the kubelet moves from one version of a volume to the next. The files of the volume are
// links through it.
const dataLink = "..data"

// readTries is how many versions of the volume in a row may be replaced while they are read.
const readTries = 3

// readTogether reads both entries from the same version of the volume. An old current key and newer accepted ones
// would make a ring without the key that the manager signs with.
func readTogether(dir string) (entries [2]string, err error) {
	for range readTries {
		entries, err = readVersion(versionOf(dir))
		if !errors.Is(err, fs.ErrNotExist) {
			break // or the kubelet has just deleted this version
		}
	}
	return entries, err
}

// versionOf returns the directory of the current version, or dir itself if it is no volume.
func versionOf(dir string) string {
	target, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		return dir
	}
	return filepath.Join(dir, target)
}

func readVersion(dir string) (entries [2]string, err error) {
	for i, name := range []string{adapterapi.KeysCurrent, adapterapi.KeysAccepted} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return entries, err
		}
		entries[i] = string(content)
	}
	return entries, nil
}
