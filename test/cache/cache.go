// Package cache says where tests keep what they download or build, outside the checkout.
package cache

import (
	"fmt"
	"os"
	"path/filepath"
)

// Dir is the directory, which need not be there.
func Dir() (string, error) {
	if dir := os.Getenv("SLIPWAY_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache: %w", err)
	}
	return filepath.Join(dir, "slipway"), nil
}
