/** Bundles programs with the packages that they use into a few files: for the package, and for a whole run of the tests. */
import { pathToFileURL } from "node:url"
import { rolldown } from "rolldown"

const root = new URL("../", import.meta.url)

/** Packages that are never bundled: they find files beside their own, or few processes load them. */
export const ALWAYS_APART: readonly string[] = [
  "@aws-sdk/client-kms",
  "@electric-sql/pglite",
  "@fastify/swagger-ui",
  "google-auth-library",
  "ioredis",
  "tiny-secp256k1",
]

interface Programs {
  /** Sources, from the root of the repository, by the names of their files. */
  programs: Record<string, string>
  folder: string
  /** Further packages that are not bundled. */
  apart: readonly string[]
  /**
   * JavaScript for the address of a source, given by its path from the root. A source finds files beside itself by its
   * own address, which is another one in a bundle.
   */
  addressOf(path: string): string
  chunks: `${string}.js`
}

/** Writes the bundle, as this version of Node runs it; returns the paths of all modules in it. */
export async function bundle({ programs, folder, apart, addressOf, chunks }: Programs): Promise<string[]> {
  const isApart = (id: string) => [...ALWAYS_APART, ...apart].some(name => id === name || id.startsWith(`${name}/`))
  const bundle = await rolldown({
    input: programs,
    platform: "node",
    cwd: root.pathname,
    transform: { target: "esnext" },
    external: isApart,
    logLevel: "silent",
    plugins: [
      {
        name: "own-address",
        transform: (code, id) => {
          const { href } = pathToFileURL(id)
          const isOurs = href.startsWith(new URL("server/", root).href)
          return isOurs ? code.replaceAll("import.meta.url", addressOf(href.slice(root.href.length))) : undefined
        },
      },
    ],
  })
  const { output } = await bundle.write({
    dir: folder,
    format: "esm",
    entryFileNames: "[name].js",
    chunkFileNames: chunks,
    // V8 keeps the text of all that it loads, and one letter beyond Latin-1 doubles a file's. So comments are left out
    // (`THIRD_PARTY_LICENSES.txt` has what they say of licenses) and letters escaped: 13 MB less of each process. Names and lines
    // stay, for stacks.
    comments: false,
    minify: { compress: false, mangle: false, codegen: { removeWhitespace: false, asciiOnly: true } },
  })
  await bundle.close()
  return output.flatMap(file => (file.type === "chunk" ? file.moduleIds : []))
}
