//! The job of an endpoint: its JobID, and the key that the job's endpoints have in common.
//!
//! Both come from the authorisation key that the application opens its objects with (`auth_key` in the
//! attributes of domain and endpoint, fi_endpoint(3)). Where it gives none, the key is in the file
//! FI_SQUALL_KEY_FILE, if any, and JobID is FI_SQUALL_JOB. What launchers set is not looked at: no variable of
//! theirs is the same for all that may become one job (MPI_Comm_spawn, MPI_Comm_connect).

use core::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::sync::Arc;

use squall_base::JobKey;
use zeroize::Zeroizing;

use crate::abi::boundary;
use crate::abi::errno::{Errno, Result};
use crate::host::logger::USER;
use crate::host::param::Params;

/// Smallest length of a job key in bytes: a shorter key could be found by trying.
const SHORTEST: usize = 16;
/// Largest length of a job key in bytes: a longer one is a mistake.
pub(crate) const LONGEST: usize = 256;

/// An authorisation key as the application gave it; it may be absent.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct AuthKey {
    bytes: Arc<Zeroizing<Vec<u8>>>,
    /// The size that the application gave, even if the key has fewer bytes.
    size: usize,
}

impl AuthKey {
    /// Copies an authorisation key out of an attribute.
    ///
    /// # Safety
    /// `key` is NULL or points to `size` bytes that no other code writes to during the call.
    pub(crate) unsafe fn read(key: *const u8, size: usize) -> Self {
        let size = if key.is_null() && size > 0 { usize::MAX } else { size };
        // SAFETY: either nothing is read, or `key` is not NULL, since `size` would be larger, and there are so
        // many bytes by this function's contract.
        let bytes = unsafe { boundary::slice(key, if size > LONGEST { 0 } else { size }) };
        Self { bytes: Arc::new(bytes.unwrap_or_default().to_vec().into()), size }
    }

    /// Returns the bytes of the authorisation key; none if there is no key.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the size of the authorisation key that the application gave, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns whether the authorisation key can be used, or there is none.
    pub(crate) fn fits(&self) -> bool {
        self.size == 0 || (SHORTEST..=LONGEST).contains(&self.size)
    }

    fn is_none(&self) -> bool {
        self.size == 0
    }
}

impl fmt::Debug for AuthKey {
    /// Writes nothing of the key, so that no log reveals it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthKey({} bytes)", self.size)
    }
}

/// The identity of a job, which an endpoint sends to its peers and expects of them.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: u32,
    pub(crate) key: Option<JobKey>,
}

impl Job {
    /// Returns the job of an endpoint from its own key, or else from the key of its domain, or else from the
    /// parameters.
    ///
    /// # Errors
    /// `FI_EINVAL` for a key that is too short or too long, `FI_EACCES` for a file that others may read, the
    /// system's for one that cannot be read; each with a warning.
    pub(crate) fn of(params: &Params, endpoint: &AuthKey, domain: &AuthKey) -> Result<Self> {
        let given = if endpoint.is_none() { domain } else { endpoint };
        if !given.fits() {
            log::warn!(
                "auth_key_size {} is out of range {SHORTEST}..={LONGEST}, or auth_key is NULL",
                given.size
            );
            return Err(Errno::INVAL);
        }
        if !given.is_none() {
            let key = JobKey::new(&given.bytes);
            return Ok(Self { id: key.job_id(), key: Some(key) });
        }
        let key = match params.key_file.as_str() {
            "" => None,
            path => Some(JobKey::new(&from_file(path)?)),
        };
        Ok(Self { id: params.job, key })
    }
}

/// Checks that a file with secrets is a regular file that only its owner may use.
///
/// # Errors
/// The error number, and the reason with a remedy.
pub(crate) fn check_private(
    about: &Metadata,
    path: &str,
) -> core::result::Result<(), (Errno, String)> {
    if !about.is_file() {
        return Err((Errno::INVAL, "this is no regular file; name another one".to_owned()));
    }
    let mode = about.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        let why =
            format!("its group or others may use the file (mode {mode:04o}); run chmod 600 {path}");
        return Err((Errno::ACCES, why));
    }
    Ok(())
}

/// Returns whether the owner of a file may choose the job's key: this user, or root.
fn is_trusted(owner: u32) -> bool {
    // SAFETY: geteuid(2) takes nothing, cannot fail, and returns the number of the user.
    owner == 0 || owner == unsafe { libc::geteuid() }
}

/// Reads the secret from a file, without the end of its last line.
fn from_file(path: &str) -> Result<Zeroizing<Vec<u8>>> {
    let refuse = |errno: Errno, why: &str| {
        log::warn!(target: USER, "FI_SQUALL_KEY_FILE={path}: {why}");
        errno
    };
    let unreadable = |error: io::Error| {
        let text = error.to_string();
        refuse(error.into(), &text)
    };
    // Opening a pipe would block until a writer opens it, too.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    check_private(&about, path).map_err(|(errno, why)| refuse(errno, &why))?;
    if !is_trusted(about.uid()) {
        let why = format!(
            "the file belongs to user {}, who knows the key and can replace it; name a file of yours or of root",
            about.uid()
        );
        return Err(refuse(Errno::ACCES, &why));
    }
    // The vector has room for the whole file, because one that grows leaves unerased copies of the key in memory.
    let mut secret = Zeroizing::new(Vec::with_capacity(LONGEST + 3));
    // One byte more than the longest key with the end of its line.
    file.take(LONGEST as u64 + 3).read_to_end(&mut secret).map_err(unreadable)?;
    // Only one end of a line is removed, because a key of random bytes may itself end with such bytes.
    let key = secret.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let length = key.unwrap_or(&secret).len();
    secret.truncate(length);
    if !(SHORTEST..=LONGEST).contains(&secret.len()) {
        let why = format!(
            "a job's key has {SHORTEST} to {LONGEST} bytes; head -c 32 /dev/urandom | base64 makes a good one"
        );
        return Err(refuse(Errno::INVAL, &why));
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::param::tests::read;

    fn key(bytes: &[u8]) -> AuthKey {
        // SAFETY: a slice is as long as it says, and no other code has it.
        unsafe { AuthKey::read(bytes.as_ptr(), bytes.len()) }
    }

    fn params(key_file: &str) -> Params {
        let (mut params, _) = read(&[]);
        (params.key_file, params.job) = (key_file.to_owned(), 42);
        params
    }

    #[test]
    fn the_endpoints_key_comes_before_the_domains() {
        let (a, b, none) = (key(&[1; 16]), key(&[2; 256]), AuthKey::default());
        let id = |endpoint, domain| Job::of(&params(""), endpoint, domain).map(|job| job.id);
        let of = |bytes: &[u8]| JobKey::new(bytes).job_id();
        assert_eq!(id(&a, &b), Ok(of(&[1; 16])));
        assert_eq!(id(&none, &b), Ok(of(&[2; 256])));
        assert_eq!(id(&none, &none), Ok(42));
        assert!(Job::of(&params(""), &none, &none).is_ok_and(|job| job.key.is_none()));
    }

    #[test]
    fn keys_that_are_no_secrets_are_refused() {
        let none = AuthKey::default();
        // SAFETY: `read` takes NULL for a key without bytes, whatever size comes with it.
        let absent = unsafe { AuthKey::read(core::ptr::null(), 32) };
        for bad in [key(&[1; 15]), key(&[1; 257]), absent] {
            assert!(!bad.fits());
            assert_eq!(Job::of(&params(""), &bad, &none).err(), Some(Errno::INVAL));
        }
        assert_eq!(format!("{:?}", key(&[65; 16])), "AuthKey(16 bytes)");
    }

    #[test]
    fn a_file_holds_a_key_if_nobody_else_reads_it() {
        let path = std::env::temp_dir().join(format!("squall-key-{}", std::process::id()));
        let name = path.to_str().expect("plain");
        let put = |bytes: &[u8], mode: u32| {
            let _ = fs::remove_file(&path);
            let file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
            io::Write::write_all(&mut file.expect("a file"), bytes).expect("room");
        };
        let of = || Job::of(&params(name), &AuthKey::default(), &AuthKey::default());
        let secret = b"0123456789abcdef0123456789abcdef";
        let key_of = |bytes: &[u8]| {
            put(bytes, 0o600);
            from_file(name).ok().map(|key| key.to_vec())
        };
        put(&[&secret[..], b"\n"].concat(), 0o600);
        let job = of().expect("a key");
        assert_eq!(job.id, 42, "a file has no say in it");
        assert_eq!(job.key.map(|key| key.job_id()), Some(JobKey::new(secret).job_id()));
        assert_eq!(key_of(&[&secret[..], b"\r\n"].concat()), Some(secret.to_vec()));
        // Random bytes may look like ends of lines.
        for end in [&b"\r"[..], b"\n\n", b"\n\r\n", b"\r\r\n"] {
            let kept = end.strip_suffix(b"\n").map(|end| end.strip_suffix(b"\r").unwrap_or(end));
            let wanted = [&secret[..], kept.unwrap_or(end)].concat();
            assert_eq!(key_of(&[&secret[..], end].concat()), Some(wanted), "{end:?}");
        }
        put(secret, 0o600);
        // Only root can give a file away.
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_ok() {
            assert_eq!(of().err(), Some(Errno::ACCES));
        }
        for mode in [0o640, 0o620, 0o604, 0o602] {
            put(secret, mode);
            // The process's umask may have removed some of these bits.
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            assert_eq!(of().err(), Some(Errno::ACCES), "{mode:o}");
        }
        for bad in [&b"short\n"[..], &[7; 257]] {
            put(bad, 0o600);
            assert_eq!(of().err(), Some(Errno::INVAL));
        }
        fs::remove_file(&path).expect("it is ours");
        assert_eq!(
            Job::of(&params("/dev/null"), &AuthKey::default(), &AuthKey::default()).err(),
            Some(Errno::INVAL)
        );
        assert_eq!(of().err(), Some(Errno(libc::ENOENT)));
    }
}
