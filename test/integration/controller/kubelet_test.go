package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
	"github.com/slipway-mcp/slipway/test/integration/loopback"
)

// kubelet stands in for one: it runs the adapter and the launcher of each pod as
// processes, at an address of the pod's own on the loopback interface, and keeps the
// pod's status.
//
// An image whose name contains "missing" cannot be pulled, and a pod of one that
// contains "unschedulable" finds no node; one that contains "unready" has long run and
// is not ready. An image called simulated-at-ADDRESS:1 is not
// run: its pod is ready as soon as it is seen, and the test answers at the address. One called
// lingering-at-ADDRESS:1 is the same, except that its deleted pods stay until the test lets them
// go.
type kubelet struct {
	client  client.WithWatch
	network *loopback.Network
	dir     string
	end     context.CancelFunc
	done    sync.WaitGroup

	mu        sync.Mutex
	pods      map[types.UID]runningPod
	abandoned map[string]bool // namespaces
	launchers map[types.UID]*os.Process
	lingering map[string]chan struct{} // closed when the deleted pods of a namespace go
}

type runningPod struct {
	namespace, name string
	end             context.CancelFunc
	output          *buffer // what its containers write, and what the kubelet could not do
}

func startKubelet(c client.WithWatch, network *loopback.Network, dir string) (*kubelet, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	k := &kubelet{
		client: c, network: network, dir: dir, end: end,
		pods: map[types.UID]runningPod{}, abandoned: map[string]bool{}, launchers: map[types.UID]*os.Process{},
		lingering: map[string]chan struct{}{},
	}
	k.done.Go(func() { k.run(ctx) })
	return k, nil
}

func (k *kubelet) stop() {
	k.end()
	k.mu.Lock()
	for namespace := range k.lingering {
		k.letGoLocked(namespace)
	}
	k.mu.Unlock()
	k.done.Wait()
}

// run follows the pods until the context ends.
func (k *kubelet) run(ctx context.Context) {
	for ctx.Err() == nil {
		watch, err := k.client.Watch(ctx, &corev1.PodList{}, client.HasLabels{mcpv1alpha1.LabelServer})
		if err != nil {
			return
		}
		for event := range watch.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				k.see(ctx, pod)
			}
		}
	}
}

func (k *kubelet) see(ctx context.Context, pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen, known := k.pods[pod.UID]
	switch {
	case !pod.DeletionTimestamp.IsZero() && known:
		seen.end()
	case !pod.DeletionTimestamp.IsZero():
		k.done.Go(func() { k.remove(pod) })
	case !known && !k.abandoned[pod.Namespace]:
		running, end := context.WithCancel(ctx)
		k.pods[pod.UID] = runningPod{pod.Namespace, pod.Name, end, &buffer{}}
		k.done.Go(func() {
			k.runPod(running, pod)
			k.remove(pod)
		})
	}
}

// abandon ends the processes of all pods of a namespace and runs no more of them. The
// API server is not told.
func (k *kubelet) abandon(namespace string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.abandoned[namespace] = true
	k.letGoLocked(namespace)
	for _, pod := range k.pods {
		if pod.namespace == namespace {
			pod.end()
		}
	}
}

// letGo removes the pods of a namespace that linger. Those that are deleted later do not.
func (k *kubelet) letGo(namespace string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.letGoLocked(namespace)
}

func (k *kubelet) letGoLocked(namespace string) {
	if gone := k.goneLocked(namespace); !isClosed(gone) {
		close(gone)
	}
}

// gone is closed when the pods of a namespace that linger are removed.
func (k *kubelet) gone(namespace string) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.goneLocked(namespace)
}

func (k *kubelet) goneLocked(namespace string) chan struct{} {
	if k.lingering[namespace] == nil {
		k.lingering[namespace] = make(chan struct{})
	}
	return k.lingering[namespace]
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// remove says that nothing of a pod runs any more.
func (k *kubelet) remove(pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(context.Background(), hang.Guard)
	defer cancel()
	current := &corev1.Pod{}
	if err := k.client.Get(ctx, client.ObjectKeyFromObject(pod), current); err != nil || current.DeletionTimestamp.IsZero() || current.UID != pod.UID {
		return
	}
	_ = k.client.Delete(ctx, current, client.GracePeriodSeconds(0)) // or it is gone
}

func (k *kubelet) runPod(ctx context.Context, pod *corev1.Pod) {
	image := pod.Spec.Containers[0].Image
	switch {
	case strings.Contains(image, "missing"):
		k.set(ctx, pod, func(status *corev1.PodStatus) {
			status.Phase = corev1.PodPending
			status.ContainerStatuses = []corev1.ContainerStatus{{Name: mcpv1alpha1.ContainerServer, Image: image, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image \"" + image + "\": not found"},
			}}}
		})
		<-ctx.Done()
	case strings.Contains(image, "unschedulable"):
		k.set(ctx, pod, func(status *corev1.PodStatus) {
			status.Phase = corev1.PodPending
			status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available",
			}}
		})
		<-ctx.Done()
	case strings.Contains(image, "unready"):
		k.set(ctx, pod, func(status *corev1.PodStatus) {
			running(status, image, k.network.Address(), false) // where nothing listens
			long := metav1.NewTime(time.Now().Add(-time.Hour))
			status.StartTime, status.ContainerStatuses[0].State.Running.StartedAt = &long, long
		})
		<-ctx.Done()
	case strings.Contains(image, "simulated-at-"):
		_, address, _ := strings.Cut(strings.TrimSuffix(image, ":1"), "simulated-at-")
		k.set(ctx, pod, func(status *corev1.PodStatus) { running(status, image, address, true) })
		<-ctx.Done()
	case strings.Contains(image, "lingering-at-"):
		_, address, _ := strings.Cut(strings.TrimSuffix(image, ":1"), "lingering-at-")
		// The API server deletes a pod without a node at once.
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "stand-in"}}
		if err := k.client.SubResource("binding").Create(ctx, pod, binding); err != nil && ctx.Err() == nil {
			k.outputOf(pod).writeLine("kubelet: bind the pod: " + err.Error())
		}
		k.set(ctx, pod, func(status *corev1.PodStatus) { running(status, image, address, true) })
		<-ctx.Done()
		<-k.gone(pod.Namespace)
	default:
		if err := k.runContainers(ctx, pod); err != nil && ctx.Err() == nil {
			k.set(ctx, pod, func(status *corev1.PodStatus) {
				status.Phase = corev1.PodFailed
				status.Message = err.Error()
			})
		}
	}
}

// runContainers runs the adapter, and the launcher of a stdio server, as the pod
// describes them, but for where they listen and find each other.
func (k *kubelet) runContainers(ctx context.Context, pod *corev1.Pod) error {
	address := k.network.Address()
	socket := filepath.Join(k.dir, "s"+address) // no other pod has that address
	adapterArgs, err := k.adapterArgs(ctx, pod, address, socket)
	if err != nil {
		return err
	}
	adapter, err := k.start(ctx, pod, sidecarProgram, adapterArgs)
	if err != nil {
		return err
	}
	exited := make(chan error, 2)
	wait := func(name string, process *exec.Cmd) {
		err := process.Wait()
		k.outputOf(pod).writeLine(fmt.Sprintf("kubelet: the %s exited: %v", name, err))
		exited <- err
	}
	go wait("adapter", adapter)
	containers := 1
	if command, found := launched(pod); found {
		launcher, err := k.start(ctx, pod, launcherProgram, append([]string{"--socket=" + socket, "--"}, command...))
		if err != nil {
			return err
		}
		k.mu.Lock()
		k.launchers[pod.UID] = launcher.Process
		k.mu.Unlock()
		containers++
		go wait("launcher", launcher)
	}
	k.report(ctx, pod, address)
	var problems []error
	for range containers {
		problems = append(problems, <-exited)
	}
	return errors.Join(problems...)
}

func (k *kubelet) start(ctx context.Context, pod *corev1.Pod, program string, args []string) (*exec.Cmd, error) {
	process := exec.CommandContext(ctx, program, args...)
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	process.WaitDelay = hang.Guard
	process.Stderr = k.outputOf(pod)
	if *showLogs {
		process.Stderr = io.MultiWriter(process.Stderr, os.Stderr)
	}
	process.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, env := range pod.Spec.Containers[0].Env {
		if env.Value != "" && env.Name != "HOME" {
			process.Env = append(process.Env, env.Name+"="+env.Value)
		}
	}
	return process, process.Start()
}

// report keeps the status of a pod that runs, until it no longer does.
func (k *kubelet) report(ctx context.Context, pod *corev1.Pod, address string) {
	ready, image := false, pod.Spec.Containers[0].Image
	k.set(ctx, pod, func(status *corev1.PodStatus) { running(status, image, address, false) })
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			if now := isReady(ctx, address); now != ready && ctx.Err() == nil {
				ready = now
				k.set(ctx, pod, func(status *corev1.PodStatus) { running(status, image, address, now) })
			}
		}
	}
}

func isReady(ctx context.Context, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/readyz", address, mcpv1alpha1.AdapterAdminPort), http.NoBody)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// adapterArgs are the arguments of the pod's adapter, changed as little as can be.
func (k *kubelet) adapterArgs(ctx context.Context, pod *corev1.Pod, address, socket string) ([]string, error) {
	adapter := pod.Spec.InitContainers[slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == mcpv1alpha1.ContainerAdapter })]
	keysDir, err := k.mountKeys(ctx, pod)
	if err != nil {
		return nil, err
	}
	settingsDir, err := k.mountSettings(ctx, pod)
	if err != nil {
		return nil, err
	}
	args := []string{adapter.Args[0]}
	for _, arg := range adapter.Args[1:] {
		switch name, _, _ := strings.Cut(arg, "="); name {
		case "--listen", "--admin-listen", "--peer-listen", "--server-uid", "--pod-uid", "--pod-ip", "--keys-dir", "--settings-dir":
		case "--socket":
			args = append(args, "--socket="+socket)
		default:
			args = append(args, arg)
		}
	}
	return append(args, "--keys-dir="+keysDir, "--settings-dir="+settingsDir, "--pod-uid="+string(pod.UID), "--pod-ip="+address,
		fmt.Sprintf("--listen=%s:%d", address, mcpv1alpha1.AdapterPort), fmt.Sprintf("--admin-listen=%s:%d", address, mcpv1alpha1.AdapterAdminPort),
		fmt.Sprintf("--peer-listen=%s:%d", address, mcpv1alpha1.AdapterPeerPort)), nil
}

// launched is what the launcher is to start for sessions, if there is one. As the init of an HTTP
// server it has no sessions.
func launched(pod *corev1.Pod) (command []string, found bool) {
	server := pod.Spec.Containers[0]
	all := append(slices.Clone(server.Command), server.Args...)
	i := slices.Index(all, "--")
	if i < 0 || !strings.HasSuffix(all[0], "/launcher") || slices.Contains(all[:i], "run") {
		return nil, false
	}
	return all[i+1:], true
}

// mountKeys writes what the pod finds in the volume with the server's keys, and follows
// the Secret as long as the pod is there, as a kubelet does.
func (k *kubelet) mountKeys(ctx context.Context, pod *corev1.Pod) (string, error) {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "slipway-keys" && v.Secret != nil })
	if i < 0 {
		return "", errors.New("the pod has no keys")
	}
	source := pod.Spec.Volumes[i].Secret
	dir := filepath.Join(k.dir, string(pod.UID))
	secret := &corev1.Secret{}
	err := k.client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: source.SecretName}, secret)
	if err == nil {
		err = writeKeys(dir, source.Items, secret)
	}
	if err != nil {
		return "", fmt.Errorf("mount keys of pod %s: %w", pod.Name, err)
	}
	watch, err := k.client.Watch(ctx, &corev1.SecretList{}, client.InNamespace(pod.Namespace), client.MatchingFields{"metadata.name": source.SecretName})
	if err != nil {
		return "", fmt.Errorf("watch keys of pod %s: %w", pod.Name, err)
	}
	k.done.Go(func() {
		for event := range watch.ResultChan() {
			changed, ok := event.Object.(*corev1.Secret)
			if !ok || event.Type == apiwatch.Deleted {
				continue
			}
			if err := writeKeys(dir, source.Items, changed); err != nil {
				k.outputOf(pod).writeLine("kubelet: write keys of the pod: " + err.Error())
			}
		}
	})
	return dir, nil
}

// mountSettings writes what the pod finds in the volume with its settings. It does not
// follow the ConfigMap: a kubelet takes longer for that than any test waits.
func (k *kubelet) mountSettings(ctx context.Context, pod *corev1.Pod) (string, error) {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "slipway-settings" && v.ConfigMap != nil })
	if i < 0 {
		return "", errors.New("the pod has no settings")
	}
	dir := filepath.Join(k.dir, string(pod.UID), "settings")
	config := &corev1.ConfigMap{}
	err := k.client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Spec.Volumes[i].ConfigMap.Name}, config)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	for name, content := range config.Data {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	if err != nil {
		return "", fmt.Errorf("mount settings of pod %s: %w", pod.Name, err)
	}
	return dir, nil
}

// writeKeys puts the files of a Secret where they are mounted, all at once as a kubelet does: they are links through one
// link, which it moves to a new directory. It does not write the files that are there: the adapter may be reading them.
func writeKeys(dir string, items []corev1.KeyToPath, secret *corev1.Secret) error {
	version, data := filepath.Join(dir, "..version-"+secret.ResourceVersion), filepath.Join(dir, "..data")
	if written, err := os.Readlink(data); err == nil && written == filepath.Base(version) {
		return nil
	}
	if err := os.MkdirAll(version, 0o700); err != nil {
		return err
	}
	for _, item := range items {
		if err := os.WriteFile(filepath.Join(version, item.Path), secret.Data[item.Key], 0o600); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join("..data", item.Path), filepath.Join(dir, item.Path)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	next := filepath.Join(dir, "..next")
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(version), next); err != nil {
		return err
	}
	return os.Rename(next, data)
}

// running is the status of a pod whose containers run.
func running(status *corev1.PodStatus, image, address string, ready bool) {
	started := metav1.NewTime(time.Now())
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
	status.Phase, status.PodIP, status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	status.InitContainerStatuses = []corev1.ContainerStatus{{Name: mcpv1alpha1.ContainerAdapter, Ready: ready, Started: new(true), State: state}}
	status.ContainerStatuses = []corev1.ContainerStatus{{Name: mcpv1alpha1.ContainerServer, Image: image, Ready: true, Started: new(true), State: state}}
	value := corev1.ConditionFalse
	if ready {
		value = corev1.ConditionTrue
	}
	status.Conditions = nil
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: started}
		if kind == corev1.ContainersReady || kind == corev1.PodReady {
			condition.Status = value
		}
		status.Conditions = append(status.Conditions, condition)
	}
}

// set changes the status of a pod. A busy API server can refuse that for a while, so the kubelet tries until the pod is
// gone or the context ends.
func (k *kubelet) set(ctx context.Context, pod *corev1.Pod, change func(*corev1.PodStatus)) {
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	told := ""
	for ctx.Err() == nil {
		current := &corev1.Pod{}
		err := k.client.Get(ctx, client.ObjectKeyFromObject(pod), current)
		if err == nil {
			change(&current.Status)
			err = k.client.Status().Update(ctx, current)
		}
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		if err.Error() != told {
			told = err.Error()
			k.outputOf(pod).writeLine("kubelet: set the status of the pod: " + told)
		}
		select {
		case <-ctx.Done():
		case <-poll.C:
		}
	}
}

// outputOf returns what the containers of a pod write.
func (k *kubelet) outputOf(pod *corev1.Pod) *buffer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[pod.UID].output
}

// outputs describes the pods of a namespace, for a test that failed.
func (k *kubelet) outputs(namespace string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var text strings.Builder
	for _, pod := range k.pods {
		if pod.namespace == namespace {
			fmt.Fprintf(&text, "pod %s:\n%s", pod.name, pod.output)
		}
	}
	return text.String()
}

// launcherOf is the process of a pod's launcher.
func (k *kubelet) launcherOf(pod types.UID) *os.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.launchers[pod]
}
