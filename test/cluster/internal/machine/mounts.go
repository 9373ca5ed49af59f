// Package machine changes the machine that a local cluster runs on, and changes
// it back: mounts, control groups, packet filter, bridge and kernel parameters.
package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is one line of mountinfo.
type Mount struct {
	Point  string
	FSType string
}

// Mounts lists what is mounted in this process's namespace, oldest first.
func Mounts() ([]Mount, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer func() { _ = file.Close() }() // Only read from.
	return parseMountinfo(file)
}

// parseMountinfo reads lines like
//
//	36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/root rw
//
// where the fields before the lone dash vary in number.
func parseMountinfo(r io.Reader) ([]Mount, error) {
	var mounts []Mount
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20) // Overlay options are long.
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		dash := slices.Index(fields, "-")
		if dash < 6 || len(fields) < dash+2 {
			return nil, fmt.Errorf("parse mountinfo: %q", scanner.Text())
		}
		mounts = append(mounts, Mount{Point: unescape(fields[4]), FSType: fields[dash+1]})
	}
	return mounts, scanner.Err()
}

// unescape undoes the kernel's octal escapes of blanks and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountsUnder returns the mount points at or below dir in the order in which
// they can be unmounted: what was mounted last goes first.
func mountsUnder(mounts []Mount, dir string) []string {
	var points []string
	for _, mount := range slices.Backward(mounts) {
		if mount.Point == dir || strings.HasPrefix(mount.Point, dir+"/") {
			points = append(points, mount.Point)
		}
	}
	slices.SortStableFunc(points, func(a, b string) int {
		return strings.Count(b, "/") - strings.Count(a, "/")
	})
	return points
}

// MountsUnder lists the mount points at or below dir, deepest first.
func MountsUnder(dir string) ([]string, error) {
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	return mountsUnder(mounts, dir), nil
}

// UnmountUnder unmounts everything at or below dir. A mount that is still busy
// is detached: it is out of sight at once and goes when its last user does.
func UnmountUnder(dir string) error {
	points, err := MountsUnder(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points {
		err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		// EINVAL: no mount point any more, it went with one above it.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}
