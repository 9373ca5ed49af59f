package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/hang"
)

// volumes are the directories of a pod, as a kubelet makes them: they belong to root, and
// every user may write to those that are not read-only.
type volumes struct {
	shared, home   string
	keys, settings string // read-only
}

func newVolumes(t *testing.T, group int) volumes {
	t.Helper()
	pod, err := os.MkdirTemp(filepath.Dir(sidecarProgram), "p") //nolint:usetesting // other users must get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(pod) })
	directory := func(name string, mode os.FileMode, files map[string]string) string {
		dir := filepath.Join(pod, name)
		problems := []error{os.Mkdir(dir, 0o700)}
		for name, content := range files {
			file := filepath.Join(dir, name)
			problems = append(problems, os.WriteFile(file, []byte(content), 0o600), os.Chmod(file, 0o444), os.Chown(file, 0, group))
		}
		for _, err := range append(problems, os.Chown(dir, 0, group), os.Chmod(dir, mode)) {
			if err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	if err := os.Chmod(pod, 0o755); err != nil {
		t.Fatal(err)
	}
	key := adapterapi.NewKey()
	return volumes{
		shared: directory("slipway", 0o777|os.ModeSetgid, nil),
		home:   directory("slipway-home", 0o777|os.ModeSetgid, nil),
		keys: directory("keys", 0o755, map[string]string{
			adapterapi.KeysCurrent: key.Encode(), adapterapi.KeysAccepted: "",
		}),
		settings: directory("settings", 0o755, map[string]string{
			adapterapi.SettingsFile: settingsDocument(t, 1, "echo.team.svc", 0), adapterapi.AccessFile: accessDocument(t, key, 1),
		}),
	}
}

// Some clusters give containers a user that no image knows, in group 0. Adapter and launcher
// find everything that they need, whether they have one user or two.
func TestAnyUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to run processes as other users takes root")
	}
	const least, most = 1_000_600_000, 1_000_700_000
	one, other := least+rand.Uint32N((most-least)/2), most-rand.Uint32N((most-least)/2)
	for name, test := range map[string]struct {
		adapter, server uint32
		fsGroup         uint32 // 0 is none
	}{
		"one user":               {one, one, 0},
		"two users":              {one, other, 0},
		"one user and a group":   {one, one, one},
		"two users and a group":  {one, other, other},
		"as on any other system": {65532, 1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gomega.NewWithT(t)
			v := newVolumes(t, int(test.fsGroup))
			as := func(uid uint32, path string, args ...string) *program {
				p := &program{Cmd: exec.CommandContext(context.WithoutCancel(t.Context()), path, args...)}
				p.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + v.home}
				p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 0, Groups: []uint32{test.fsGroup}}}
				return p
			}
			install := func() {
				if out, err := as(test.adapter, sidecarProgram, "install", v.shared).CombinedOutput(); err != nil {
					t.Fatalf("install: %v: %s", err, out)
				}
			}
			install()
			socket, installed := filepath.Join(v.shared, "adapter.sock"), filepath.Join(v.shared, "launcher")
			adapter := as(test.adapter, sidecarProgram, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--drain-timeout", "1s",
				"--socket", socket, "--keys-dir", v.keys, "--settings-dir", v.settings, "--pod-uid", testUID)
			adapter.run(t)
			// As servers do that npx starts, this one writes to its home first.
			as(test.server, installed, "--socket", socket, "--", "/bin/sh", "-c", `echo $$ >"$HOME/$$" && exec "$0"`, echoServer).run(t)
			admin := adapter.admin(t)
			g.Eventually(func() int { return status(t, admin+"/readyz?wait=1.8s") }).WithTimeout(hang.Guard).Should(gomega.Equal(http.StatusOK))
			g.Expect(openAs(t, clientURL.FindStringSubmatch(adapter.written())[1], "echo.team.svc")).To(gomega.Equal(http.StatusOK))

			install() // as after a restart of the adapter's container
			if out, err := as(test.server, installed, "drain", "--socket", socket).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("drain: %v: %s", err, out)
			}
		})
	}
}
