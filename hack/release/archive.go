package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// file is one of an archive. Archives have their files in the order of names and with one time, so that the same
// files are the same bytes.
type file struct {
	name    string
	mode    fs.FileMode
	content []byte
}

func sorted(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
}

func tarGz(files []file, modified time.Time) ([]byte, error) {
	var archive bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&archive, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("make gzip writer: %w", err)
	}
	writer := tar.NewWriter(compressed)
	for _, f := range sorted(files) {
		// Without a user and a group, the unpacked files belong to the one who unpacks them.
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode.Perm()), Size: int64(len(f.content)),
			ModTime: modified.UTC(), Format: tar.FormatUSTAR,
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("write header of %s: %w", f.name, err)
		}
		if _, err := writer.Write(f.content); err != nil {
			return nil, fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("close archive: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("compress archive: %w", err)
	}
	return archive.Bytes(), nil
}

func zipped(files []file, modified time.Time) ([]byte, error) {
	var archive bytes.Buffer
	writer := zip.NewWriter(&archive)
	for _, f := range sorted(files) {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: modified.UTC()}
		header.SetMode(f.mode)
		part, err := writer.CreateHeader(header)
		if err != nil {
			return nil, fmt.Errorf("write header of %s: %w", f.name, err)
		}
		if _, err := part.Write(f.content); err != nil {
			return nil, fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("close archive: %w", err)
	}
	return archive.Bytes(), nil
}
