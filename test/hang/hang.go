// Package hang bounds how long a test waits for something that must happen.
package hang

import "time"

// Guard is that bound. A test that reaches it hangs; no test claims that something
// happens within it. It is long enough for a machine that is busy with other work, and
// short enough for several of them within the ten minutes that go test gives a package.
const Guard = 2 * time.Minute
