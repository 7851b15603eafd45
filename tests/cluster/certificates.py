"""Certificates for tests, made by openssl: an authority, and what it signs."""
import os
import subprocess


class Authority:
    def __init__(self, folder, name="ca", parent=None, constraint="CA:TRUE"):
        """parent: the authority that this one is under."""
        self.folder, self.name = folder, name
        if parent:
            self.ca, key = parent.sign(name, extensions=("basicConstraints=critical," + constraint,))
            self.name = os.path.basename(key)[:-len(".key")]
            return
        self.ca = os.path.join(folder, name + ".pem")
        self._openssl("req", "-x509", *self._new_key(name), "-out", self.ca, "-days", "2", "-subj", f"/CN={name}")

    def _new_key(self, name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                os.path.join(self.folder, name + ".key")]

    def _openssl(self, *args):
        subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=self.folder)

    def sign(self, name, *alternatives, extensions=(), days=2):
        """A certificate with these alternative names ("DNS:x", "IP:y"); (certificate, key)."""
        name = f"{self.name}_{name}"
        with open(os.path.join(self.folder, name + ".ext"), "w") as f:
            f.write("\n".join([*extensions, *(["subjectAltName=" + ",".join(alternatives)] if alternatives else [])]) + "\n")
        self._openssl("req", *self._new_key(name), "-out", name + ".csr", "-subj", f"/CN={name}")
        self._openssl("x509", "-req", "-in", name + ".csr", "-CA", self.ca, "-CAkey", self.name + ".key",
                      "-CAcreateserial", "-days", str(days), "-out", name + ".pem", "-extfile", name + ".ext")
        return os.path.join(self.folder, name + ".pem"), os.path.join(self.folder, name + ".key")


def chained(pair, *between):
    """The same with the authorities between it and the one that is trusted, lowest first."""
    together = pair[0][:-len(".pem")] + "_chain.pem"
    with open(together, "w") as out:
        for path in (pair[0], *(a.ca for a in between)):
            with open(path) as f:
                out.write(f.read())
    return together, pair[1]


def flags(pair, ca):
    return [f"--tls_cert={pair[0]}", f"--tls_key={pair[1]}", f"--tls_ca={ca}"]
