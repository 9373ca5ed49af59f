package report

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// patience is how long one log or the metrics of one pod may take: the node may be gone.
const patience = 30 * time.Second

// container is what a report needs to know of a container.
type container struct {
	name      string
	isRunning bool
	restarts  int64
}

// containers are those of a pod, init containers first.
func containers(pod *unstructured.Unstructured) []container {
	var all []container
	for _, kind := range []string{"initContainer", "container", "ephemeralContainer"} {
		specs, _, _ := unstructured.NestedSlice(pod.Object, "spec", kind+"s")
		statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", kind+"Statuses")
		for _, spec := range specs {
			fields, _ := spec.(object)
			name, _ := fields["name"].(string)
			all = append(all, newContainer(name, statuses))
		}
	}
	return all
}

func newContainer(name string, statuses []any) container {
	made := container{name: name}
	for _, status := range statuses {
		fields, _ := status.(object)
		if fields["name"] != name {
			continue
		}
		made.restarts, _ = fields["restartCount"].(int64)
		state, _ := fields["state"].(object)
		made.isRunning = state["running"] != nil
	}
	return made
}

// addPod writes the logs of a pod, and the metrics of its adapter.
func (c *collector) addPod(ctx context.Context, directory string, values *Values, pod *unstructured.Unstructured) error {
	key := types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetName()}
	for _, container := range containers(pod) {
		base := fmt.Sprintf("%s/pods/%s/%s", directory, pod.GetName(), container.name)
		if err := c.addText(ctx, base+".log", "logs of pods", values, key, func(ctx context.Context) (io.ReadCloser, error) {
			return c.OpenLog(ctx, Log{Pod: key, Container: container.name})
		}); err != nil {
			return err
		}
		if container.restarts > 0 {
			if err := c.addText(ctx, base+".previous.log", "logs of pods", values, key, func(ctx context.Context) (io.ReadCloser, error) {
				return c.OpenLog(ctx, Log{Pod: key, Container: container.name, Previous: true})
			}); err != nil {
				return err
			}
		}
		if container.name == mcpv1alpha1.ContainerAdapter && container.isRunning {
			if err := c.addText(ctx, fmt.Sprintf("%s/pods/%s/metrics.txt", directory, pod.GetName()), "metrics of pods", values, key, func(ctx context.Context) (io.ReadCloser, error) {
				return c.OpenMetrics(ctx, key)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// addText writes a text of a pod without values. What cannot be read is noted.
func (c *collector) addText(ctx context.Context, name, kind string, values *Values, pod types.NamespacedName, open func(context.Context) (io.ReadCloser, error)) error {
	content, err := readText(ctx, open)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		c.lackText(name, kind, pod, err)
	}
	if content == "" {
		return nil
	}
	return c.archive.add(name, []byte(values.Remove(content)))
}

// readText reads a text up to a bound. A line that the bound cuts is left out: it may end within a value. The same holds for a
// text that breaks off.
func readText(ctx context.Context, open func(context.Context) (io.ReadCloser, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := open(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = stream.Close() }()
	content, err := io.ReadAll(io.LimitReader(stream, LogBytes))
	if err == nil && len(content) == LogBytes {
		err = errCut
	}
	if err != nil {
		content = content[:bytes.LastIndexByte(content, '\n')+1]
	}
	return string(content), err
}

const errCut = constantError("cut after 5 MiB")
