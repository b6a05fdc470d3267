/** esbuild reads these imports; for the types they are nothing. */
declare module "*.css"
