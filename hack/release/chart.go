package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// writeChart packages the Helm chart, if the checkout has one, as helm package would: below a directory with the
// chart's name. It has the version of the release, which Helm writes without the v, and the names of its images.
func writeChart(opts options, modified time.Time) error {
	directory := filepath.Join(opts.root, "charts", "slipway")
	if _, err := os.Stat(filepath.Join(directory, "Chart.yaml")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	version := strings.TrimPrefix(opts.version, "v")
	files, name, err := chartFiles(os.DirFS(directory), version, opts.version, opts.prefix)
	if err != nil {
		return fmt.Errorf("read chart: %w", err)
	}
	content, err := tarGz(files, modified)
	if err != nil {
		return fmt.Errorf("pack chart: %w", err)
	}
	return opts.publish(name+"-"+version+".tgz", content)
}

func chartFiles(chart fs.FS, version, appVersion, prefix string) (files []file, name string, err error) {
	metadata, err := fs.ReadFile(chart, "Chart.yaml")
	if err != nil {
		return nil, "", err
	}
	metadata, name, err = setVersions(metadata, version, appVersion)
	if err != nil {
		return nil, "", fmt.Errorf("set versions in Chart.yaml: %w", err)
	}
	values, err := fs.ReadFile(chart, "values.yaml")
	if err != nil {
		return nil, "", err
	}
	if values, err = setPrefix(values, prefix); err != nil {
		return nil, "", fmt.Errorf("set image.prefix in values.yaml: %w", err)
	}
	changed := map[string][]byte{"Chart.yaml": metadata, "values.yaml": values}
	paths, err := chartPaths(chart)
	if err != nil {
		return nil, "", err
	}
	for _, where := range paths {
		content, ok := changed[where]
		if !ok {
			if content, err = fs.ReadFile(chart, where); err != nil {
				return nil, "", err
			}
		}
		files = append(files, file{name: path.Join(name, where), mode: 0o644, content: content})
	}
	return files, name, nil
}

// chartPaths lists the files that .helmignore does not leave out.
func chartPaths(chart fs.FS) (paths []string, err error) {
	ignored, err := readIgnored(chart)
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(chart, ".", func(where string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case where != "." && ignored.has(where, entry.IsDir()):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file", where)
		}
		paths = append(paths, where)
		return nil
	})
	return paths, err
}

// setVersions changes the values of version and appVersion where they stand. Comments stay.
func setVersions(metadata []byte, version, appVersion string) (changed []byte, name string, err error) {
	var document yaml.Node
	if err := yaml.Unmarshal(metadata, &document); err != nil {
		return nil, "", err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, "", errors.New("it is not an object")
	}
	want := map[string]string{"version": version, "appVersion": appVersion}
	fields := document.Content[0].Content
	for i := 0; i+1 < len(fields); i += 2 {
		key, value := fields[i].Value, fields[i+1]
		if key == "name" {
			name = value.Value
		}
		if text, ok := want[key]; ok {
			value.SetString(text)
			value.Style = yaml.DoubleQuotedStyle
			delete(want, key)
		}
	}
	if name == "" || len(want) > 0 {
		return nil, "", errors.New("it must have name, version and appVersion")
	}
	var encoded bytes.Buffer
	encoder := yaml.NewEncoder(&encoded)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&document), encoder.Close()); err != nil {
		return nil, "", err
	}
	return encoded.Bytes(), name, nil
}

// imagePrefix finds the value of image.prefix, below comments and other fields of image.
var imagePrefix = regexp.MustCompile(`(?m)^(image:[^\S\n]*\n(?:(?:[ \t#].*)?\n)*?  prefix:[ ]+)\S+[^\S\n]*$`)

// setPrefix changes the value of image.prefix where it stands: an encoder would not keep the lines between comments,
// which people read.
func setPrefix(values []byte, prefix string) ([]byte, error) {
	changed := imagePrefix.ReplaceAll(values, []byte("${1}"+prefix))
	var got struct {
		Image struct{ Prefix string }
	}
	if err := yaml.Unmarshal(changed, &got); err != nil {
		return nil, err
	}
	if got.Image.Prefix != prefix {
		return nil, fmt.Errorf("it is %q and was to become %q", got.Image.Prefix, prefix)
	}
	return changed, nil
}

// ignored are the patterns of .helmignore.
type ignored []string

// readIgnored takes the patterns that the chart needs, and refuses what it would understand otherwise than Helm.
func readIgnored(chart fs.FS) (ignored, error) {
	content, err := fs.ReadFile(chart, ".helmignore")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var patterns ignored
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		_, err := path.Match(line, "")
		if err != nil || strings.HasPrefix(line, "!") || strings.Contains(line, "**") {
			return nil, fmt.Errorf(".helmignore: the pattern %q is not supported here", line)
		}
		patterns = append(patterns, line)
	}
	return patterns, nil
}

// has matches as Helm does: a pattern with a slash is about the whole path, one without about the name, and one
// that ends with a slash about directories only.
func (i ignored) has(where string, isDirectory bool) bool {
	return slices.ContainsFunc(i, func(pattern string) bool {
		pattern, onlyDirectories := strings.CutSuffix(pattern, "/")
		if onlyDirectories && !isDirectory {
			return false
		}
		subject := path.Base(where)
		if strings.Contains(pattern, "/") {
			subject, pattern = where, strings.TrimPrefix(pattern, "/")
		}
		matches, err := path.Match(pattern, subject)
		return err == nil && matches
	})
}
