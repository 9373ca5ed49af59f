package imagebuild

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// modeBits are the bits of a File's Mode that reach the image.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// plan returns the layer's entries in the order they are written: sorted by
// path, so that a directory comes before what it holds.
func plan(files []File) ([]File, error) {
	entries := make(map[string]File, len(files))
	for _, file := range files {
		if err := validate(file); err != nil {
			return nil, fmt.Errorf("file %q: %w", file.Path, err)
		}
		if _, twice := entries[file.Path]; twice {
			return nil, fmt.Errorf("file %q: named twice", file.Path)
		}
		if file.Mode&modeBits == 0 {
			file.Mode |= defaultMode(file.Mode)
		}
		entries[file.Path] = file
	}
	for _, file := range files {
		for dir := path.Dir(file.Path); dir != "/"; dir = path.Dir(dir) {
			parent, named := entries[dir]
			if named && !parent.Mode.IsDir() {
				return nil, fmt.Errorf("file %q: its parent %q is a file", file.Path, dir)
			}
			if !named {
				entries[dir] = File{Path: dir, Mode: fs.ModeDir | defaultMode(fs.ModeDir)}
			}
		}
	}
	sorted := make([]File, 0, len(entries))
	for _, entry := range entries {
		sorted = append(sorted, entry)
	}
	slices.SortFunc(sorted, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return sorted, nil
}

func defaultMode(mode fs.FileMode) fs.FileMode {
	if mode.IsDir() {
		return 0o755
	}
	return 0o644
}

func validate(file File) error {
	if err := validatePath(file.Path); err != nil {
		return err
	}
	if file.Mode&^(modeBits|fs.ModeDir|fs.ModeSymlink) != 0 {
		return fmt.Errorf("mode %v: only regular files, directories and symbolic links are supported", file.Mode)
	}
	if file.Mode&fs.ModeSymlink != 0 && (file.Source != "" || len(file.Content) == 0) {
		return errors.New("a symbolic link has its target as content")
	}
	return validateContent(file)
}

func validatePath(name string) error {
	switch {
	case !path.IsAbs(name):
		return errors.New("the path is not absolute")
	case strings.ContainsRune(name, 0):
		return errors.New("the path contains a NUL byte")
	case path.Clean(name) != name:
		return fmt.Errorf("the path is not clean, write %q", path.Clean(name))
	case name == "/":
		return errors.New("the root directory cannot be replaced")
	case strings.HasPrefix(path.Base(name), ".wh."):
		return errors.New("the name would be read as a whiteout")
	}
	return nil
}

func validateContent(file File) error {
	switch {
	case file.Mode.IsDir() && (file.Source != "" || file.Content != nil):
		return errors.New("a directory has neither source nor content")
	case file.Mode.IsDir():
		return nil
	case file.Source != "" && file.Content != nil:
		return errors.New("both source and content are set")
	case file.Source == "" && file.Content == nil:
		return errors.New("neither source nor content is set")
	case file.Source == "":
		return nil
	}
	info, err := os.Stat(file.Source)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("source %s is not a regular file", file.Source)
	}
	return nil
}

// opener returns a function that streams the uncompressed layer. The reader is
// asked for more than once (digest, diff ID), hence a function.
func opener(entries []File, created time.Time) tarball.Opener {
	return func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(writeLayer(writer, entries, created)) }()
		return reader, nil
	}
}

func writeLayer(w io.Writer, entries []File, created time.Time) error {
	tw := tar.NewWriter(w)
	for _, entry := range entries {
		if err := writeEntry(tw, entry, created); err != nil {
			return fmt.Errorf("write %s: %w", entry.Path, err)
		}
	}
	return tw.Close()
}

func writeEntry(tw *tar.Writer, entry File, created time.Time) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     strings.TrimPrefix(entry.Path, "/"),
		Mode:     tarMode(entry.Mode),
		ModTime:  created,
	}
	if entry.Mode.IsDir() {
		header.Typeflag = tar.TypeDir
		header.Name += "/"
		return tw.WriteHeader(header)
	}
	if entry.Mode&fs.ModeSymlink != 0 {
		header.Typeflag, header.Linkname = tar.TypeSymlink, string(entry.Content)
		return tw.WriteHeader(header)
	}
	var content io.Reader = bytes.NewReader(entry.Content)
	header.Size = int64(len(entry.Content))
	if entry.Source != "" {
		file, err := os.Open(entry.Source)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // Only read from.
		info, err := file.Stat()
		if err != nil {
			return err
		}
		content, header.Size = file, info.Size()
	}
	if err := tw.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(tw, content)
	return err
}

// tarMode translates Go's mode bits to those of the tar format, which are Unix's.
func tarMode(mode fs.FileMode) int64 {
	bits := int64(mode.Perm())
	for flag, bit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
