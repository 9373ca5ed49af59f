package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// answerPatience is for a registry to say that it has an image. Machines without a registry must not wait for long.
const answerPatience = 10 * time.Second

// pullArchive pulls an image into a file for `docker load`, and returns the name that the engine then has it by: an
// archive cannot say the digest that a name ends with.
func pullArchive(ctx context.Context, image, path string) (string, error) {
	reference, err := name.ParseReference(image)
	if err != nil {
		return "", fmt.Errorf("pull %s: %w", image, err)
	}
	tagged, _, _ := strings.Cut(image, "@")
	tag, err := name.NewTag(tagged)
	if err != nil {
		return "", fmt.Errorf("pull %s: %w", image, err)
	}
	asking, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	if _, err := remote.Head(reference, remote.WithContext(asking)); err != nil {
		return "", fmt.Errorf("pull %s: %w", image, err)
	}
	found, err := remote.Image(reference, remote.WithContext(ctx), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return "", fmt.Errorf("pull %s: %w", image, err)
	}
	updates, told := make(chan v1.Update, 1), make(chan struct{})
	go func() {
		defer close(told)
		tellPull(tagged, updates)
	}()
	err = tarball.WriteToFile(path, tag, found, tarball.WithProgress(updates))
	close(updates)
	<-told
	if err != nil {
		return "", fmt.Errorf("pull %s: %w", image, err)
	}
	return tagged, nil
}

// tellPull tells every few seconds how far a pull is.
func tellPull(image string, updates <-chan v1.Update) {
	const every = 5 * time.Second
	began, last := time.Now(), time.Now()
	for update := range updates {
		if time.Since(last) < every || update.Complete <= 0 {
			continue
		}
		last = time.Now()
		left := time.Duration(float64(time.Since(began)) * float64(update.Total-update.Complete) / float64(update.Complete))
		_, _ = fmt.Fprintf(os.Stdout, "progress: pull %s, %d of %d MB, about %s left\n", image, update.Complete>>20, update.Total>>20, left.Round(time.Second))
	}
}
